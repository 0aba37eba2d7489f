// Deadlines and cancellation of blocking calls. Every wait has a deadline.
#pragma once

#include <atomic>

#include "common/base/clock.h"

namespace tilewright::net {

// An event that ends blocking waits, set from another thread or a signal handler. It stays
// signalled until clear(), so a wait that begins later also ends at once. Implemented with an
// eventfd.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;
  void signal();  // any thread; async-signal-safe
  void clear();
  bool signalled() const { return signalled_.load(std::memory_order_acquire); }
  int fd() const { return fd_; }  // readable while signalled, for poll loops

 private:
  int fd_;
  std::atomic<bool> signalled_{false};
};

struct Wait {
  Wait(MonotonicTime until,
       const WakeUp* cancel_token = nullptr)  // NOLINT: a deadline alone is a Wait
      : deadline(until), cancel(cancel_token) {}
  MonotonicTime deadline;
  const WakeUp* cancel;  // not owned; null: cannot be cancelled
};

inline Wait within(Duration duration, const WakeUp* cancel = nullptr) {
  return {monotonic_now() + duration, cancel};
}

enum class Ready { kYes, kTimedOut, kCancelled };

// Waits until poll(2) reports one of `events`, an error or a hang-up on fd. Cancellation takes
// precedence over readiness.
Ready wait_ready(int fd, short events, const Wait& wait);

// Sleeps until the deadline. False: cancelled, perhaps before the call.
bool sleep_until(const Wait& wait);

// Sleeps for a fixed time, for what no event reports. False: `wait` is over or cancelled.
bool pause_for(const Wait& wait, Duration duration);

// The timeout argument of poll(2) for a deadline: in milliseconds, rounded up, at least 0, at most
// kLongestWait.
int poll_timeout(MonotonicTime deadline, MonotonicTime now = monotonic_now());

}  // namespace tilewright::net
