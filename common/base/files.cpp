#include "common/base/files.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/base/random.h"

namespace tilewright {
namespace {

// The first bytes of a Git LFS pointer (git-lfs, docs/spec.md).
constexpr std::string_view kLfsPointerStart = "version https://git-lfs";

Error system_error(ExitCode code, const std::filesystem::path& path, const char* action) {
  return {code, fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno))};
}

Error output_error(const std::filesystem::path& path, const char* action) {
  return system_error(output_error_code(errno), path, action);
}

std::string home_directory(const GetVariable& variable) {
  if (std::string home = variable("HOME"); !home.empty()) return home;
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? "/" : found->pw_dir;
}

const char* file_type(mode_t mode) {
  if (S_ISFIFO(mode)) return "pipe";
  if (S_ISSOCK(mode)) return "socket";
  return "device";
}

// Whether it is the file that is open as standard output, as /dev/stdout is. To open it again would
// write from its beginning.
bool is_standard_output(const std::filesystem::path& path) {
  struct stat named {};
  struct stat standard {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
         named.st_dev == standard.st_dev && named.st_ino == standard.st_ino;
}

Status write_all(const FileDescriptor& file, const std::filesystem::path& path,
                 std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written >= 0) {
      content.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return output_error(path, "write");
    }
  }
  return {};
}

// Network file systems report a failed write when the file is closed.
Status close_written(FileDescriptor file, const std::filesystem::path& path) {
  return close(file.release()) == 0 ? Status() : output_error(path, "close");
}

// Appends the rest of the file, and ends early above max_bytes. Returns its size, or nullopt with
// errno set.
std::optional<std::size_t> read_to_end(int fd, std::uint64_t max_bytes, std::string& content) {
  char block[65536];
  while (content.size() <= max_bytes) {
    const ssize_t length = read(fd, block, sizeof block);
    if (length == 0) break;
    if (length > 0) {
      content.append(block, static_cast<std::size_t>(length));
    } else if (errno == EAGAIN) {  // a process that shares it has made it non-blocking
      pollfd ready{fd, POLLIN, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
  return content.size();
}

Error too_large(const std::filesystem::path& path, std::uint64_t max_bytes, ExitCode code) {
  return {code, fmt::format("{}: is larger than {} bytes, the limit for this file", path.string(),
                            max_bytes)};
}

enum class Accept { kAnyFile, kRegularFile };

Result<std::string> read_kind(const std::filesystem::path& path, Accept kind,
                              std::uint64_t max_bytes, ExitCode code,
                              std::optional<ExitCode> transient) {
  const auto failed_to = [&](const char* action) {
    const bool may_pass = output_error_code(errno) == ExitCode::kOutputUnavailable;
    return system_error(may_pass ? transient.value_or(code) : code, path, action);
  };
  // A pipe without a writer, and a file of /proc without content, must not block.
  const int flags = kind == Accept::kRegularFile ? O_NONBLOCK : 0;
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file) return failed_to("open");
  struct stat status {};
  // On FUSE an open file that has just been replaced may have no status, but still its content.
  const bool has_status = fstat(file.get(), &status) == 0;
  if (has_status && S_ISDIR(status.st_mode)) {
    return Error{code, fmt::format("{}: is a directory, expected a file", path.string())};
  }
  if (has_status && kind == Accept::kRegularFile && !S_ISREG(status.st_mode)) {
    return Error{code,
                 fmt::format("{}: is a {}, expected a regular file, because several processes "
                             "read it, again after a restart",
                             path.string(), file_type(status.st_mode))};
  }
  std::string content;
  const std::optional<std::size_t> size = read_to_end(file.get(), max_bytes, content);
  if (!size) return failed_to("read");
  if (*size > max_bytes) return too_large(path, max_bytes, code);
  if (const Status usable = refuse_lfs_pointer(path, content, code); !usable.ok()) {
    return usable.error();
  }
  return content;
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                              ExitCode code, std::optional<ExitCode> transient) {
  return read_kind(path, Accept::kAnyFile, max_bytes, code, transient);
}

Result<std::string> read_regular_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                                      ExitCode code, std::optional<ExitCode> transient) {
  return read_kind(path, Accept::kRegularFile, max_bytes, code, transient);
}

Result<Input> read_input(const std::filesystem::path& file, std::uint64_t max_bytes,
                         ExitCode code) {
  if (file != "-") {
    Result<std::string> text = read_file(file, max_bytes, code);
    if (!text.ok()) return text.error();
    return Input{file.string(), std::move(text).value()};
  }
  Input input{"standard input", {}};
  const std::optional<std::size_t> size = read_to_end(STDIN_FILENO, max_bytes, input.text);
  if (!size) return system_error(code, input.name, "read");
  if (*size > max_bytes) return too_large(input.name, max_bytes, code);
  return input;
}

Status refuse_lfs_pointer(const std::filesystem::path& path, std::string_view content,
                          ExitCode code) {
  if (!content.starts_with(kLfsPointerStart)) return {};
  return Error{code, fmt::format("{}: is a Git LFS pointer, expected the file itself: run git lfs "
                                 "pull in its repository, or give the repository's name on the "
                                 "Hugging Face hub",
                                 path.string())};
}

ExitCode output_error_code(int error) {
  switch (error) {
    case EAGAIN:
    case EDQUOT:
    case EHOSTDOWN:
    case EIO:
    case ENOSPC:
    case ENOTCONN:  // the server of a FUSE file system has died
    case EREMOTEIO:
    case ESTALE:
    case ETIMEDOUT:
      return ExitCode::kOutputUnavailable;
    default:
      return ExitCode::kOutput;
  }
}

Status sync_path(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return output_error(path, "open for sync");
  if (fsync(file.get()) == 0) return {};
  const int error = errno;
  std::error_code ignored;
  // A file system, such as that of shared folders, that has no fsync for directories.
  if (error == EINVAL && std::filesystem::is_directory(path, ignored)) return {};
  errno = error;
  return output_error(path, "sync");
}

Status write_new_file(const std::filesystem::path& path, std::string_view content) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return output_error(path, "create");
  Status status = write_all(file, path, content);
  if (status.ok() && fsync(file.get()) != 0) status = output_error(path, "sync");
  if (status.ok()) status = close_written(std::move(file), path);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path staging = path.string() + ".tmp-" + random_hex(8);
  if (Status written = write_new_file(staging, content); !written.ok()) return written;
  if (rename(staging.c_str(), path.c_str()) != 0) {
    const Error error = output_error(path, "rename into place");
    unlink(staging.c_str());
    return error;
  }
  return sync_path(path.has_parent_path() ? path.parent_path() : ".");
}

Status write_output(const std::filesystem::path& path, std::string_view content) {
  namespace fs = std::filesystem;
  const bool to_standard_output = is_standard_output(path);
  if (!to_standard_output) {
    std::error_code error;
    const fs::path file = fs::canonical(path, error);
    if (!error && fs::is_regular_file(file, error)) return write_file_atomically(file, content);
    if (!fs::exists(fs::symlink_status(path, error))) return write_file_atomically(path, content);
  }
  // O_CREAT: the file that a link names may be missing.
  FileDescriptor file(to_standard_output
                          ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                          : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) return output_error(path, "open");
  if (Status written = write_all(file, path, content); !written.ok()) return written;
  return close_written(std::move(file), path);
}

std::string expand_home(std::string path, const GetVariable& variable) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, home_directory(variable));
  return path;
}

}  // namespace tilewright
