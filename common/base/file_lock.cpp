#include "common/base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "common/base/files.h"

namespace tilewright {

FileLock::FileLock(const std::filesystem::path& path, const std::function<bool()>& keep_waiting)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  const auto fail = [&](const char* action) {
    throw Failure(output_error_code(errno),
                  fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
  };
  if (!file_) fail("create the lock");
  while (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL) {
      state_ = State::kUnsupported;
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR && errno != EACCES) fail("lock");
    if (!keep_waiting()) {
      state_ = State::kGivenUp;
      return;
    }
  }
}

}  // namespace tilewright
