// The thread of a server with non-blocking sockets: waits for descriptors (epoll), the next
// deadline of a clock, and wake-ups by other threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "common/base/clock.h"
#include "common/base/file_descriptor.h"
#include "common/net/wait.h"

namespace tilewright::net {

class EventLoop {
 public:
  // Identifies a watched descriptor. The owner chooses it and does not use it again, so that an
  // event never reaches the successor of a closed descriptor.
  using Id = std::uint64_t;
  static constexpr Id kFirstId = 1;
  static constexpr std::size_t kMaxEvents = 64;

  // `mutex` guards the state of the owner. The thread holds it except while it waits. Both must
  // outlive the loop, which the owner therefore declares last.
  EventLoop(Clock& clock, std::mutex& mutex);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // One wait takes at most kMaxWait; if kStallThreshold more pass between two iterations, beside
  // what the thread computes, it did not run (SIGSTOP, CPU throttling, a paused machine). Above the
  // delays of a busy machine.
  static constexpr Duration kMaxWait = std::chrono::seconds(1);
  static constexpr Duration kStallThreshold = std::chrono::seconds(1);

  // Starts the thread. It calls `next_wake` for the time until which it waits, waits until then or
  // for kMaxWait, and calls `iterate`, again and again. `gap`: zero, or the time since the last
  // iteration if the thread did not run. Only with the system's clock.
  void start(std::function<MonotonicTime()> next_wake, std::function<void(Duration gap)> iterate);
  // Ends the wait. Any thread, with or without the mutex.
  void wake() { wake_up_.signal(); }

  // `events` are those of epoll(7). A descriptor that is closed is no longer watched.
  void watch(Id id, int fd, std::uint32_t events);
  void change(Id id, int fd, std::uint32_t events);
  // Calls `handle` with up to kMaxEvents ready descriptors and does not wait. Further calls report
  // the other ready ones in turn; false: there are none.
  bool take_events(const std::function<void(Id id, std::uint32_t events)>& handle);

 private:
  static constexpr Id kWakeUpId = 0;

  void run();
  void control(int operation, Id id, int fd, std::uint32_t events);

  Clock& clock_;
  std::mutex& mutex_;
  const FileDescriptor epoll_;
  WakeUp wake_up_;
  std::function<MonotonicTime()> next_wake_;
  std::function<void(Duration)> iterate_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tilewright::net
