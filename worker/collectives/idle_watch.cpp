#include "worker/collectives/idle_watch.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace tilewright::collectives {
namespace {

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR &&
              EPOLLHUP == POLLHUP);

// Also watches for errors and for the end of the connection.
void watch(int epoll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  const bool done = epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) == 0 ||
                    (errno == ENOENT && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
  TW_CHECK(done, "epoll_ctl: {}", std::strerror(errno));
}

}  // namespace

IdleWatch::IdleWatch(const net::WakeUp& signal)
    : signal_(signal.fd()), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  TW_CHECK(static_cast<bool>(epoll_), "epoll_create1: {}", std::strerror(errno));
  watch(epoll_.get(), signal_, EPOLLIN);
}

void IdleWatch::arm(std::vector<pollfd> fds) {
  disarm();
  armed_ = std::move(fds);
  for (const pollfd& entry : armed_) {
    watch(epoll_.get(), entry.fd, static_cast<std::uint32_t>(entry.events) | EPOLLONESHOT);
  }
}

void IdleWatch::disarm() {
  for (const pollfd& entry : armed_) watch(epoll_.get(), entry.fd, EPOLLONESHOT);
  armed_.clear();
}

std::vector<pollfd> IdleWatch::wait() const {
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               net::poll_timeout(MonotonicTime::max()));
  TW_CHECK(count >= 0 || errno == EINTR, "epoll_wait: {}", std::strerror(errno));
  std::vector<pollfd> ready;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == signal_) continue;
    ready.push_back({event.data.fd, 0, static_cast<short>(event.events)});
  }
  return ready;
}

}  // namespace tilewright::collectives
