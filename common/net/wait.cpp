#include "common/net/wait.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/base/check.h"

namespace tilewright::net {

WakeUp::WakeUp() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {
  TW_CHECK(fd_ >= 0, "eventfd: {}", std::strerror(errno));
}

WakeUp::~WakeUp() { close(fd_); }

// Setting the flag adds one to the descriptor, and resetting it subtracts one.
void WakeUp::signal() {
  // The flag first: a thread that the descriptor wakes reads it.
  if (signalled_.exchange(true)) return;
  const int saved = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  errno = saved;
}

void WakeUp::clear() {
  if (!signalled_.exchange(false)) return;
  std::uint64_t one = 0;
  while (read(fd_, &one, sizeof one) < 0) {
    TW_CHECK(errno == EAGAIN || errno == EINTR, "eventfd: {}", std::strerror(errno));
    // The thread that signals is between its two operations.
    pollfd polled{fd_, POLLIN, 0};
    poll(&polled, 1, -1);
  }
}

int poll_timeout(MonotonicTime deadline, MonotonicTime now) {
  const Duration left = std::clamp(deadline - now, Duration::zero(), kLongestWait);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

Ready wait_ready(int fd, short events, const Wait& wait) {
  pollfd fds[2] = {{fd, events, 0}, {wait.cancel ? wait.cancel->fd() : -1, POLLIN, 0}};
  const auto cancelled = [&wait] { return wait.cancel && wait.cancel->signalled(); };
  while (true) {
    if (cancelled()) return Ready::kCancelled;
    const int count = poll(fds, 2, poll_timeout(wait.deadline));
    TW_CHECK(count >= 0 || errno == EINTR, "poll: {}", std::strerror(errno));
    if (cancelled() || (count > 0 && fds[1].revents != 0)) return Ready::kCancelled;
    if (count > 0 && fds[0].revents != 0) return Ready::kYes;
    if (monotonic_now() >= wait.deadline) return Ready::kTimedOut;
  }
}

bool sleep_until(const Wait& wait) {
  constexpr int kNoDescriptor = -1;  // which poll() ignores
  return wait_ready(kNoDescriptor, 0, wait) == Ready::kTimedOut;
}

bool pause_for(const Wait& wait, Duration duration) {
  const Wait part(std::min(wait.deadline, monotonic_now() + duration), wait.cancel);
  return sleep_until(part) && monotonic_now() < wait.deadline;
}

}  // namespace tilewright::net
