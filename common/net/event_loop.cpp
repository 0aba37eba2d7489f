#include "common/net/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace tilewright::net {
namespace {

// What the calling thread has computed.
Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

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
  MonotonicTime last = monotonic_now();
  Duration last_busy = thread_cpu_time();
  while (!stop_) {
    const MonotonicTime now = clock_.now();
    const MonotonicTime wake = std::min(next_wake_(), now + kMaxWait);
    lock.unlock();
    pollfd any_input{epoll_.get(), POLLIN, 0};
    poll(&any_input, 1, poll_timeout(wake, now));  // SIGCONT may interrupt it
    lock.lock();
    const Duration passed = monotonic_now() - last, busy = thread_cpu_time() - last_busy;
    last += passed;
    last_busy += busy;
    const Duration gap = passed - busy;
    // A clock that a test advances stands still while the thread does not run.
    const bool stalled = gap > kMaxWait + kStallThreshold && &clock_ == &system_clock();
    iterate_(stalled ? gap : Duration::zero());
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
