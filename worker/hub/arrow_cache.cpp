#include "worker/hub/arrow_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "worker/hub/repository.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxInfoBytes = 16 << 20;
constexpr std::size_t kMaxEntries = 10'000;
constexpr std::size_t kMaxArrowFiles = 10'000;

// "SQuADv2" to "s_qu_a_dv2", as the library names directories: an underscore before an upper-case
// letter that follows a lower-case letter or a digit, or that begins a word after upper-case ones.
std::string snake_case(const std::string& name) {
  const auto upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string snake;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool after_lower =
        i > 0 && (lower(name[i - 1]) || std::isdigit(static_cast<unsigned char>(name[i - 1])) != 0);
    const bool begins_word =
        i > 0 && upper(name[i - 1]) && i + 1 < name.size() && lower(name[i + 1]);
    if (upper(name[i]) && (after_lower || begins_word)) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return snake;
}

std::vector<fs::path> subdirectories(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end;
       entry != end && found.size() < kMaxEntries; entry.increment(ignored)) {
    if (entry->is_directory(ignored)) found.push_back(entry->path());
  }
  return found;
}

// The files of one HASH directory; nullopt if one is missing.
std::optional<ArrowDataset> read_prepared(const fs::path& directory, const std::string& name) {
  const auto content =
      read_regular_file(directory / "dataset_info.json", kMaxInfoBytes, ExitCode::kData);
  if (!content) return std::nullopt;
  const nlohmann::json info = nlohmann::json::parse(*content, nullptr, false);
  if (!info.is_object() || !info.contains("splits") || !info["splits"].is_object() ||
      info["splits"].empty()) {
    return std::nullopt;
  }
  ArrowDataset dataset;
  if (const auto config = info.find("config_name"); config != info.end() && config->is_string()) {
    dataset.config = config->get<std::string>();
  }
  for (const auto& [split, description] : info["splits"].items()) {
    if (!is_file_name(split) || split.find('/') != std::string::npos) return std::nullopt;
    std::size_t shards = 1;
    if (description.is_object()) {
      const auto lengths = description.find("shard_lengths");
      if (lengths != description.end() && lengths->is_array()) {
        shards = std::max<std::size_t>(1, lengths->size());
      }
    }
    if (shards > kMaxArrowFiles) return std::nullopt;
    for (std::size_t shard = 0; shard < shards; ++shard) {
      const std::string number = shards == 1 ? "" : fmt::format("-{:05}-of-{:05}", shard, shards);
      const fs::path file = directory / fmt::format("{}-{}{}.arrow", name, split, number);
      std::error_code ignored;
      if (!fs::is_regular_file(file, ignored)) return std::nullopt;
      dataset.splits[split].push_back(file);
    }
  }
  return dataset;
}

}  // namespace

std::optional<ArrowDataset> find_arrow_dataset(const fs::path& datasets_cache,
                                               const std::string& name, const std::string& config) {
  const std::size_t slash = name.find('/');
  const std::string base = snake_case(slash == std::string::npos ? name : name.substr(slash + 1));
  const std::string folder =
      slash == std::string::npos ? base : fmt::format("{}___{}", name.substr(0, slash), base);
  std::optional<ArrowDataset> latest;
  fs::file_time_type latest_time = fs::file_time_type::min();
  for (const fs::path& config_dir : subdirectories(datasets_cache / folder)) {
    if (!config.empty() && config_dir.filename() != config) continue;
    for (const fs::path& version : subdirectories(config_dir)) {
      for (const fs::path& hash : subdirectories(version)) {
        auto found = read_prepared(hash, base);
        // Otherwise the directory's name has a suffix for data files of the user's own choice.
        if (!found || found->config != config_dir.filename()) continue;
        if (latest && latest->config != found->config) return std::nullopt;
        std::error_code ignored;
        const fs::file_time_type time = fs::last_write_time(hash, ignored);
        if (!latest || time > latest_time) {
          latest = std::move(found);
          latest_time = time;
        }
      }
    }
  }
  return latest;
}

}  // namespace tilewright::hub
