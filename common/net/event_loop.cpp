#include "common/net/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace tilewright::net {

EventLoop::EventLoop(Clock& clock, std::mutex& mutex)
    : clock_(clock), mutex_(mutex), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  TW_CHECK(epoll_.get() >= 0, "epoll_create1: {}", std::strerror(errno));
  watch(kWakeUpId, wake_up_.fd(), EPOLLIN);
  clock_.subscribe(this, [this] { wake(); });
}

EventLoop::~EventLoop() {
  clock_.unsubscribe(this);
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::start(std::function<MonotonicTime()> next_wake,
                      std::function<void(Duration gap)> iterate) {
  next_wake_ = std::move(next_wake);
  iterate_ = std::move(iterate);
  thread_ = std::thread([this] { run(); });
}

void EventLoop::run() {
  std::unique_lock lock(mutex_);
  MonotonicTime last = monotonic_now(), last_of_clock = clock_.now();
  while (!stop_) {
    const MonotonicTime now = clock_.now();
    const MonotonicTime wake = std::min(next_wake_(), now + kMaxWait);
    lock.unlock();
    pollfd any_input{epoll_.get(), POLLIN, 0};
    poll(&any_input, 1, poll_timeout(wake, now));  // SIGCONT may interrupt it
    lock.lock();
    // A clock that a test advances has not passed while the thread did not run, and the reverse.
    const Duration passed = monotonic_now() - last, passed_of_clock = clock_.now() - last_of_clock;
    last += passed;
    last_of_clock += passed_of_clock;
    const Duration gap = std::min(passed, passed_of_clock);
    iterate_(gap > kMaxWait + kStallThreshold ? gap : Duration::zero());
  }
}

void EventLoop::watch(Id id, int fd, std::uint32_t events) {
  control(EPOLL_CTL_ADD, id, fd, events);
}

void EventLoop::change(Id id, int fd, std::uint32_t events) {
  control(EPOLL_CTL_MOD, id, fd, events);
}

void EventLoop::control(int operation, Id id, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  TW_CHECK(epoll_ctl(epoll_.get(), operation, fd, &event) == 0, "epoll_ctl: {}",
           std::strerror(errno));
}

bool EventLoop::take_events(const std::function<void(Id id, std::uint32_t events)>& handle) {
  std::array<epoll_event, kMaxEvents> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  TW_CHECK(count >= 0 || errno == EINTR, "epoll_wait: {}", std::strerror(errno));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeUpId) {
      wake_up_.clear();
    } else {
      handle(event.data.u64, event.events);
    }
  }
  return count < 0 || static_cast<std::size_t>(count) == events.size();
}

}  // namespace tilewright::net
