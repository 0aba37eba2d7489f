#include "worker/checkpoint/atomic_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "common/base/files.h"

namespace tilewright::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".tmp-";

[[noreturn]] void fail(const fs::path& path, const std::string& action, int error) {
  throw Failure(ExitCode::kOutput,
                fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(error)));
}

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path aside_of(const fs::path& target, const char* infix = "") {
  return parent_of(target) /
         fmt::format(".{}{}{}{}", target.filename().string(), infix, kMark, getpid());
}

// The process id in a name ".NAME.tmp-PID".
std::optional<pid_t> owner_of(const std::string& name) {
  const auto mark = name.rfind(kMark);
  if (!name.starts_with('.') || mark == std::string::npos || mark < 2) return std::nullopt;
  const char* begin = name.data() + mark + kMark.size();
  const char* end = name.data() + name.size();
  pid_t pid = 0;
  const auto [stop, error] = std::from_chars(begin, end, pid);
  if (error != std::errc() || stop != end || pid <= 0) return std::nullopt;
  return pid;
}

bool alive(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

// The lock is on the folder itself, so it ends with the process that made it, whatever its id and
// in whatever container; ids start again from one in each.
bool in_use(const fs::path& path, pid_t owner) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return alive(owner);  // a file of write_file_atomically
  const int outcome = flock(fd, LOCK_EX | LOCK_NB);
  const int error = errno;
  close(fd);
  if (outcome == 0) return false;
  return error == EWOULDBLOCK || alive(owner);
}

void sync_or_throw(const fs::path& path) { sync_path(path).or_throw(); }

}  // namespace

AtomicDirectory::AtomicDirectory(const fs::path& target)
    : target_(without_trailing_slash(target)), aside_(aside_of(target_)) {
  std::error_code error;
  fs::remove_all(aside_, error);  // of a process that had this id and died
  if (mkdir(aside_.c_str(), 0755) != 0) fail(aside_, "create the folder", errno);
  lock_ = open(aside_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (lock_ >= 0) flock(lock_, LOCK_EX | LOCK_NB);  // without locks the id in the name must do
}

AtomicDirectory::~AtomicDirectory() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(aside_, ignored);
  }
  if (lock_ >= 0) close(lock_);
}

void AtomicDirectory::sync() const {
  std::error_code error;
  fs::recursive_directory_iterator entry(aside_, error);
  while (!error && entry != fs::recursive_directory_iterator()) {
    sync_or_throw(entry->path());
    entry.increment(error);
  }
  if (error) fail(aside_, "list", error.value());
  sync_or_throw(aside_);
}

void AtomicDirectory::commit() {
  TW_CHECK(!committed_, "{} is committed twice", target_.string());
  sync();
  if (!rename_to_new(aside_, target_)) {
    if (renameat2(AT_FDCWD, aside_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      std::error_code ignored;
      fs::remove_all(aside_, ignored);  // what stood there before; if it stays it is stale
    } else if (errno == EINVAL || errno == ENOSYS) {
      // A file system that cannot exchange: for a moment there is none.
      remove_directory_atomically(target_);
      if (rename(aside_.c_str(), target_.c_str()) != 0) fail(target_, "rename into place", errno);
    } else {
      fail(target_, "take over", errno);
    }
  }
  committed_ = true;
  sync_or_throw(parent_of(target_));
}

void AtomicDirectory::commit_into(const fs::path& folder, const std::string& last) {
  TW_CHECK(!committed_, "{} is committed twice", target_.string());
  sync();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(aside_, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error) fail(aside_, "list", error.value());
  const auto place_of_last = std::find(names.begin(), names.end(), last);
  TW_CHECK(place_of_last != names.end(), "{} was not written", last);
  std::rotate(place_of_last, place_of_last + 1, names.end());

  if (unlink((folder / last).c_str()) != 0 && errno != ENOENT) {
    fail(folder / last, "remove", errno);
  }
  sync_or_throw(folder);
  for (const std::string& name : names) {
    if (name == last) sync_or_throw(folder);
    if (rename((aside_ / name).c_str(), (folder / name).c_str()) != 0) {
      fail(folder / name, "rename into place", errno);
    }
  }
  sync_or_throw(folder);
  fs::remove_all(aside_, error);
  committed_ = true;
}

void remove_directory_atomically(const fs::path& directory) {
  const fs::path target = without_trailing_slash(directory);
  const fs::path aside = aside_of(target, ".removed");
  std::error_code error;
  fs::remove_all(aside, error);
  if (rename(target.c_str(), aside.c_str()) != 0) fail(target, "rename aside", errno);
  fs::remove_all(aside, error);
  if (error) fail(aside, "remove", error.value());
}

bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (errno == EINVAL || errno == ENOSYS) {  // a file system without the flag
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(to, ignored))) return false;
    if (rename(from.c_str(), to.c_str()) == 0) return true;
  }
  fail(to, "rename into place", errno);
}

bool is_aside_name(const std::string& name) { return owner_of(name).has_value(); }

std::vector<std::string> remove_stale_asides(const fs::path& parent) {
  std::vector<std::string> removed;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    const auto owner = owner_of(name);
    if (owner && !in_use(entry->path(), *owner)) removed.push_back(name);
  }
  for (const std::string& name : removed) fs::remove_all(parent / name, error);
  return removed;
}

}  // namespace tilewright::checkpoint
