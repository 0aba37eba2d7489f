#include "worker/train/feature_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "common/base/files.h"
#include "common/base/sha256.h"
#include "worker/checkpoint/hashed_file.h"
#include "worker/checkpoint/staging.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kLockSuffix = ".lock";
// Staging files that are older have no writer any more.
constexpr std::chrono::hours kStagingAge{1};
constexpr std::chrono::milliseconds kPollInterval{20};

std::uintmax_t bytes_of(const std::vector<fs::path>& files) {
  std::uintmax_t bytes = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    if (!error) bytes += size;  // a missing file is an error of the task
  }
  return bytes;
}

struct File {
  fs::path path;
  std::uintmax_t bytes = 0;
  fs::file_time_type used;
};

// The files of the directory that exist at the time of the call.
std::vector<File> files_in(const fs::path& directory) {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    std::error_code gone;
    File file{i->path(), i->file_size(gone), {}};
    if (!gone) file.used = i->last_write_time(gone);
    if (!gone) files.push_back(std::move(file));
  }
  return files;
}

// The name of an entry. Throws Failure(kData) for a file that cannot be read.
std::string name_of(const FeatureCache::Key& key, const std::string& program) {
  nlohmann::json all = {{"program", program}, {"settings", key.settings}};
  for (const auto* files : {&key.data_files, &key.tokenizer_files}) {
    for (const fs::path& file : *files) {
      all["files"].push_back(checkpoint::digest_of(file, ExitCode::kData).sha256);
    }
  }
  return sha256_hex(all.dump());
}

void remove_file(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

fs::path lock_file_of(const fs::path& entry) { return entry.string() + kLockSuffix; }

// Removes a file when it goes out of scope. A process that waits for the lock of a removed file may
// tokenize at the same time as one that makes a new file, if the entry is not there by then; each
// adds it in one rename.
class RemovedAtEnd {
 public:
  explicit RemovedAtEnd(fs::path path) : path_(std::move(path)) {}
  ~RemovedAtEnd() {
    if (!path_.empty()) remove_file(path_);
  }
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;

 private:
  fs::path path_;
};

}  // namespace

tasks::Dataset FeatureCache::get(const Key& key,
                                 const std::function<tasks::Dataset()>& read) const {
  if (options_.directory.empty() || options_.program.empty() || key.data_files.empty() ||
      bytes_of(key.data_files) < options_.min_input_bytes) {
    return read();
  }
  fs::path path;
  try {
    path = options_.directory / (name_of(key, options_.program) + kSuffix);
  } catch (const Failure&) {
    return read();  // fails, too, with a better message
  }
  std::error_code ignored;
  const fs::file_time_type before = fs::last_write_time(path, ignored);
  if (!options_.overwrite) {
    if (auto found = find(path, key.limits)) return *std::move(found);
  }
  const std::optional<FileLock> locked = lock(path);
  const RemovedAtEnd lock_file(locked ? lock_file_of(path) : "");
  // Another process may have added it meanwhile.
  if (locked && fs::last_write_time(path, ignored) != before) {
    if (auto found = find(path, key.limits)) return *std::move(found);
  }
  tasks::Dataset data = read();
  return locked ? add(path, std::move(data), key.limits) : data;
}

// The data set in the file; nullopt if there is none or it is damaged.
std::optional<tasks::Dataset> FeatureCache::find(const fs::path& path,
                                                 const tasks::DatasetLimits& limits) const {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    tasks::Dataset found = tasks::open_dataset(path, limits);
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // the time of its last use
    log_.info("training data: {} from the cache {}", counted(found.size(), "example"),
              path.string());
    return found;
  } catch (const Failure& failure) {
    log_.warn("{}: the training data are tokenized again", failure.what());
    return std::nullopt;
  }
}

// nullopt, after a line in the log, if nothing can be added to the cache.
std::optional<FileLock> FeatureCache::lock(const fs::path& path) const {
  const MonotonicTime deadline = monotonic_now() + options_.wait;
  try {
    fs::create_directories(options_.directory);
    bool reported = false;
    FileLock lock(lock_file_of(path), [&] {
      if (!std::exchange(reported, true)) {
        log_.info("waiting for another process that tokenizes the training data");
      }
      if (!net::sleep_until(net::within(kPollInterval, options_.cancel))) {
        throw Failure(ExitCode::kTerminated, fmt::format("{}: cancelled", path.string()));
      }
      return monotonic_now() < deadline;
    });
    if (lock.state() != FileLock::State::kGivenUp) return lock;
    log_.warn(
        "{}: another process has not added the training data within {}; they are tokenized "
        "without the cache",
        path.string(), format_duration(options_.wait));
  } catch (const fs::filesystem_error& error) {
    log_.info("the training data are not cached: {}: cannot create the directory: {}",
              options_.directory.string(), error.code().message());
  } catch (const Failure& failure) {
    if (failure.code() == ExitCode::kTerminated) throw;
    log_.info("the training data are not cached: {}", failure.what());
  }
  return std::nullopt;
}

// The data set in the new file, so that all processes share its memory; `data` if that fails.
tasks::Dataset FeatureCache::add(const fs::path& path, tasks::Dataset data,
                                 const tasks::DatasetLimits& limits) const {
  const fs::path staging =
      options_.directory / checkpoint::new_staging_name(path.filename().string());
  try {
    tasks::write_dataset(staging, data);
    fs::rename(staging, path);
    tasks::Dataset added = tasks::open_dataset(path, limits);
    log_.info("training data: cached in {}", path.string());
    remove_old(path);
    return added;
  } catch (const fs::filesystem_error& error) {
    log_.warn("the training data are not cached: {}: cannot rename: {}", staging.string(),
              error.code().message());
  } catch (const Failure& failure) {
    log_.warn("the training data are not cached: {}", failure.what());
  }
  remove_file(staging);
  return data;
}

void FeatureCache::remove_old(const fs::path& kept) const {
  std::vector<File> files = files_in(options_.directory);
  std::ranges::sort(files, std::ranges::greater(), &File::used);
  const fs::file_time_type now = fs::file_time_type::clock::now();
  std::uintmax_t bytes = 0;
  for (const File& file : files) {
    const bool is_staging = checkpoint::is_staging_name(file.path.filename().string());
    if (is_staging && now - file.used > kStagingAge) remove_file(file.path);
    if (file.path.extension() != kSuffix || is_staging) continue;
    bytes += file.bytes;
    if (bytes <= options_.max_bytes || file.path == kept) continue;
    remove_file(file.path);
  }
}

}  // namespace tilewright::train
