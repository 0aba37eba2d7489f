// Which checkpoints an output folder holds, and which of them are fit for use.
#include <algorithm>
#include <charconv>

#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checksums.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string digits = name.substr(kPrefix.size());
  std::int64_t step = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, step);
  if (error != std::errc() || stop != end || std::to_string(step) != digits) return std::nullopt;
  return step < 0 ? std::nullopt : std::optional(step);
}

bool is_complete(const fs::path& checkpoint) {
  try {
    verify_sizes(checkpoint, read_checksums(checkpoint));
    return true;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace

std::vector<fs::path> list_checkpoints(const fs::path& output_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const auto step = step_of(entry->path().filename());
    if (step && fs::exists(entry->path() / kChecksumsFile, ignored)) {
      found.emplace_back(*step, entry->path());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<fs::path> latest_checkpoint(const fs::path& output_dir) {
  for (const fs::path& path : list_checkpoints(output_dir)) {
    if (is_complete(path)) return path;
  }
  return std::nullopt;
}

ValidCheckpoint latest_valid_checkpoint(const fs::path& output_dir) {
  ValidCheckpoint out;
  for (const fs::path& path : list_checkpoints(output_dir)) {
    try {
      verify_content(path, read_checksums(path));
      out.path = path;
      return out;
    } catch (const Failure& failure) {
      out.warnings.push_back(fmt::format("passing over {}: {}", path.string(), failure.what()));
    }
  }
  return out;
}

std::vector<fs::path> prune(const fs::path& output_dir, int keep) {
  std::vector<fs::path> removed;
  if (keep <= 0) return removed;
  int complete = 0;
  for (const fs::path& path : list_checkpoints(output_dir)) {
    if (complete >= keep) {
      removed.push_back(path);
    } else if (is_complete(path)) {
      ++complete;
    }
  }
  std::reverse(removed.begin(), removed.end());  // the oldest goes first
  for (const fs::path& path : removed) remove_directory_atomically(path);
  return removed;
}

}  // namespace tilewright::checkpoint
