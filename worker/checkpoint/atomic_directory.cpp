#include "worker/checkpoint/atomic_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/base/files.h"
#include "worker/checkpoint/storage.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReplaced = ".replaced";  // in the staging directory

void rename_or_throw(const fs::path& from, const fs::path& to, const fs::path& named,
                     const char* action) {
  if (rename(from.c_str(), to.c_str()) != 0) fail_storage(named, action, errno);
}

void sync_or_throw(const fs::path& path) { sync_path(path).or_throw(); }

bool has_entry(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(fs::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory)
    fail_storage(path, "stat", error.value());
  return found;
}

// Moves `target` into the staging directory, if it exists. A writer whose staging directory a newer
// owner has removed cannot do this any more.
void move_to_staging(const fs::path& target, const StagingDirectory& staging) {
  if (!has_entry(target)) return;
  rename_or_throw(target, staging.path() / kReplaced, target, "move to the staging directory");
}

// Makes the directory `from` the directory `target`. rename() replaces a directory only if it is
// empty.
void replace_directory(const fs::path& from, const fs::path& target,
                       const StagingDirectory& staging) {
  if (rename(from.c_str(), target.c_str()) == 0) return;
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) {
    fail_storage(target, "rename into place", errno);
  }
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail_storage(target, "replace", errno);
  // This file system cannot exchange directories: the target is absent for a moment.
  move_to_staging(target, staging);
  rename_or_throw(from, target, target, "rename into place");
}

std::vector<std::string> files_with_last(const fs::path& directory, const std::string& last) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error) fail_storage(directory, "list", error.value());
  const auto position = std::find(names.begin(), names.end(), last);
  // A newer owner may be removing the files.
  if (position == names.end()) fail_storage(directory / last, "find", ENOENT);
  std::rotate(position, position + 1, names.end());
  return names;
}

// A superseded writer can fail in many ways, because its staging directory is gone: report the
// cause.
void run_as_writer(const OutputWriter& output, const std::function<void()>& change) {
  try {
    change();
  } catch (const Failure&) {
    output.throw_if_superseded();
    throw;
  }
}

}  // namespace

AtomicDirectory::AtomicDirectory(const OutputWriter& output, const std::string& name)
    : output_(output),
      name_(name),
      staging_(output.directory(), name, output.writer()),
      content_(staging_.path() / name) {
  output_.check();  // saves a superseded writer from writing everything in vain
  run_as_writer(output_, [&] {
    if (mkdir(content_.c_str(), 0755) != 0) fail_storage(content_, "create the directory", errno);
  });
}

void AtomicDirectory::fill(const std::function<void(const fs::path&)>& write) const {
  run_as_writer(output_, [&] { write(content_); });
}

void AtomicDirectory::sync() const {
  std::error_code error;
  fs::recursive_directory_iterator entry(content_, error);
  while (!error && entry != fs::recursive_directory_iterator()) {
    sync_or_throw(entry->path());
    entry.increment(error);
  }
  if (error) fail_storage(content_, "list", error.value());
  sync_or_throw(content_);
}

void AtomicDirectory::commit_with(const std::function<void()>& move_into_place) {
  TW_CHECK(!committed_, "{} is committed twice", content_.string());
  run_as_writer(output_, [&] {
    sync();
    output_.check();
    move_into_place();
    sync_or_throw(output_.directory());
  });
  committed_ = true;
}

void AtomicDirectory::commit() {
  commit_with([&] { replace_directory(content_, output_.directory() / name_, staging_); });
}

void AtomicDirectory::commit_files(const std::string& last) {
  commit_with([&] {
    const fs::path& directory = output_.directory();
    const std::vector<std::string> names = files_with_last(content_, last);
    move_to_staging(directory / last, staging_);
    sync_or_throw(directory);
    for (const std::string& name : names) {
      if (name == last) sync_or_throw(directory);
      rename_or_throw(content_ / name, directory / name, directory / name, "rename into place");
    }
  });
}

void remove_atomically(const OutputWriter& output, const std::string& name) {
  run_as_writer(output, [&] {
    const StagingDirectory removed(output.directory(), "removed", output.writer());
    output.check();
    const fs::path target = output.directory() / name;
    rename_or_throw(target, removed.path() / name, target, "move to the staging directory");
  });
}

}  // namespace tilewright::checkpoint
