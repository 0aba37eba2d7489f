#include "worker/hub/repository_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "common/base/files.h"
#include "common/base/random.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxRefBytes = 4096;
constexpr std::uint64_t kMaxMarkerBytes = 64 << 20;
constexpr std::size_t kMaxSnapshotFiles = 100'000;

[[noreturn]] void fail(const fs::path& path, const char* action, int error) {
  throw Failure(output_error_code(error), fmt::format("{}: cannot {} in the Hugging Face cache: {}",
                                                      path.string(), action, std::strerror(error)));
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(path, "create the directory", error.value());
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

RepositoryCache::RepositoryCache(const fs::path& cache_dir, const Repository& repository)
    : repository_(repository), cache_dir_(cache_dir), folder_(cache_dir / repository.folder()) {}

fs::path RepositoryCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

fs::path RepositoryCache::file(const std::string& commit, const std::string& name) const {
  return snapshot(commit) / name;
}

fs::path RepositoryCache::blob(const std::string& etag) const { return folder_ / "blobs" / etag; }

std::optional<std::string> RepositoryCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path path = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const Result<std::string> content = read_regular_file(path, kMaxRefBytes, repository_.code());
  if (!content) return std::nullopt;
  const std::string commit = trimmed(*content);
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

std::vector<std::string> RepositoryCache::commits() const {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder_ / "snapshots", ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (is_commit(name)) found.emplace_back(fs::last_write_time(entry->path(), ignored), name);
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<std::string> commits;
  commits.reserve(found.size());
  for (auto& [time, name] : found) commits.push_back(std::move(name));
  return commits;
}

std::vector<std::string> RepositoryCache::files(const std::string& commit) const {
  std::vector<std::string> names;
  std::error_code ignored;
  const fs::path root = snapshot(commit);
  for (fs::recursive_directory_iterator entry(root, ignored), end;
       entry != end && names.size() < kMaxSnapshotFiles; entry.increment(ignored)) {
    if (entry->is_regular_file(ignored)) {
      names.push_back(entry->path().lexically_relative(root).string());
    }
  }
  std::ranges::sort(names);
  return names;
}

Presence RepositoryCache::find(const std::string& commit, const std::string& name) const {
  if (is_there(file(commit, name))) return Presence::kPresent;  // follows the link
  return is_there(folder_ / ".no_exist" / commit / name) ? Presence::kAbsent : Presence::kUnknown;
}

fs::path RepositoryCache::lock_file(const std::string& etag) const {
  const fs::path directory = cache_dir_ / ".locks" / repository_.folder();
  make_directories(directory);
  return directory / (etag + ".lock");
}

void RepositoryCache::create_blob_directory() const { make_directories(folder_ / "blobs"); }

void RepositoryCache::link(const std::string& commit, const std::string& name,
                           const std::string& etag) const {
  const fs::path path = file(commit, name);
  make_directories(path.parent_path());
  // Relative, so that the cache can be moved or mounted elsewhere.
  const fs::path target = blob(etag).lexically_relative(path.parent_path());
  const fs::path staging = fmt::format("{}.tmp-{}", path.string(), random_hex(8));
  if (symlink(target.c_str(), staging.c_str()) == 0) {
    if (rename(staging.c_str(), path.c_str()) == 0) return;
    const int error = errno;
    unlink(staging.c_str());
    fail(path, "create the link", error);
  }
  if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) fail(path, "create a link", errno);
  if (rename(blob(etag).c_str(), path.c_str()) != 0) fail(path, "move the file", errno);
}

void RepositoryCache::mark_absent(const std::string& commit, const std::string& name) const {
  const fs::path path = folder_ / ".no_exist" / commit / name;
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  static_cast<void>(write_new_file(path, ""));
}

fs::path RepositoryCache::partial_marker(const std::string& commit, const std::string& part) const {
  return folder_ / ".incomplete" / commit / part;
}

void RepositoryCache::begin(const std::string& commit, const std::string& part,
                            const std::vector<std::string>& files) const {
  const fs::path path = partial_marker(commit, part);
  make_directories(path.parent_path());
  write_file_atomically(path, fmt::format("{}", fmt::join(files, "\n"))).or_throw();
}

void RepositoryCache::finish(const std::string& commit, const std::string& part) const {
  std::error_code ignored;
  fs::remove(partial_marker(commit, part), ignored);
}

bool RepositoryCache::is_partial(const std::string& commit, const std::string& part) const {
  const fs::path path = partial_marker(commit, part);
  if (!is_there(path)) return false;
  const Result<std::string> marker = read_regular_file(path, kMaxMarkerBytes, repository_.code());
  if (!marker || marker->empty()) return true;
  std::istringstream lines(*marker);
  for (std::string name; std::getline(lines, name);) {
    if (find(commit, name) != Presence::kPresent) return true;
  }
  return false;
}

void RepositoryCache::set_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return;
  const fs::path path = folder_ / "refs" / revision;
  make_directories(path.parent_path());
  write_file_atomically(path, commit).or_throw();
}

}  // namespace tilewright::hub
