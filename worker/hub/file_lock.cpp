#include "worker/hub/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "common/base/files.h"

namespace tilewright::hub {
namespace {

// flock(2) has no deadline, and a holder in another pod cannot signal, so the lock is polled.
constexpr std::chrono::milliseconds kPollInterval{100};

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const HubOptions& options,
                   const std::function<std::uintmax_t()>& progress) {
  file_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) {
    throw Failure(output_error_code(errno), fmt::format("{}: cannot create the lock: {}",
                                                        path.string(), std::strerror(errno)));
  }
  std::uintmax_t last = progress();
  MonotonicTime deadline = monotonic_now() + options.limits.lock;
  for (bool reported = false;; reported = true) {
    if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0) {
      locked_ = true;
      return;
    }
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL) return;
    if (errno != EWOULDBLOCK && errno != EINTR && errno != EACCES) {
      throw Failure(output_error_code(errno),
                    fmt::format("{}: cannot lock: {}", path.string(), std::strerror(errno)));
    }
    if (!reported) {
      options.report(fmt::format("waiting for another process that downloads the same file ({})",
                                 path.string()));
    }
    if (const std::uintmax_t now = progress(); now != last) {
      last = now;
      deadline = monotonic_now() + options.limits.lock;
    }
    if (monotonic_now() >= deadline) {
      throw Failure(ExitCode::kHubUnavailable,
                    fmt::format("{}: another process holds the lock and has downloaded nothing "
                                "for {}",
                                path.string(), format_duration(options.limits.lock)));
    }
    if (net::wait_ready(-1, 0, net::within(kPollInterval, options.cancel)) ==
        net::Ready::kCancelled) {
      throw Failure(ExitCode::kTerminated, fmt::format("{}: cancelled", path.string()));
    }
  }
}

}  // namespace tilewright::hub
