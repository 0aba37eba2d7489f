#include "common/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace tilewright {
namespace {

Error system_error(ExitCode code, const std::filesystem::path& path, const char* action) {
  return {code, fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno))};
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                              ExitCode code) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) {
    return Error{code, fmt::format("{}: is a folder, expected a file", path.string())};
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return system_error(code, path, "open");
  std::string content;
  char block[65536];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    content.append(block, static_cast<std::size_t>(in.gcount()));
    if (content.size() > max_bytes) {
      return Error{code, fmt::format("{}: is larger than the {} bytes allowed for such a file",
                                     path.string(), max_bytes)};
    }
  }
  if (in.bad()) return system_error(code, path, "read");
  return content;
}

Status sync_path(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(ExitCode::kOutput, path, "open for sync");
  const int outcome = fsync(fd);
  const int saved = errno;
  close(fd);
  errno = saved;
  if (outcome != 0) return system_error(ExitCode::kOutput, path, "sync");
  return {};
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  const std::filesystem::path aside = path.string() + fmt::format(".tmp-{}", getpid());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return system_error(ExitCode::kOutput, aside, "create");
  Status status;
  while (!content.empty() && status.ok()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written >= 0) {
      content.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      status = system_error(ExitCode::kOutput, aside, "write");
    }
  }
  if (status.ok() && fsync(fd) != 0) status = system_error(ExitCode::kOutput, aside, "sync");
  close(fd);
  if (status.ok() && rename(aside.c_str(), path.c_str()) != 0) {
    status = system_error(ExitCode::kOutput, path, "rename into place");
  }
  if (!status.ok()) {
    unlink(aside.c_str());
    return status;
  }
  return sync_path(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace tilewright
