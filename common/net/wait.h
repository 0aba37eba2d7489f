// How long a blocking call may wait and what may end the wait early. No wait is without a deadline.
#pragma once

#include <atomic>

#include "common/base/clock.h"

namespace tilewright::net {

// A bell that ends blocking waits from another thread or a signal handler. It stays rung until
// clear(), so a wait that begins later ends at once too.
class WakeUp {
 public:
  WakeUp();
  ~WakeUp();
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;
  void signal();  // any thread; async-signal-safe
  void clear();
  bool signalled() const { return signalled_.load(std::memory_order_acquire); }
  int fd() const { return fd_; }  // readable while rung, for poll loops

 private:
  int fd_;
  std::atomic<bool> signalled_{false};
};

struct Wait {
  Wait(MonotonicTime until, const WakeUp* bell = nullptr)  // NOLINT: a deadline alone is a Wait
      : deadline(until), cancel(bell) {}
  MonotonicTime deadline;
  const WakeUp* cancel;  // not owned; null: cannot be cancelled
};

inline Wait within(Duration duration, const WakeUp* cancel = nullptr) {
  return {monotonic_now() + duration, cancel};
}

enum class Ready { kYes, kTimedOut, kCancelled };

// Waits until poll(2) reports one of `events`, an error or a hang-up on fd. fd -1 waits for the
// deadline or the cancellation only. Cancellation wins over readiness.
Ready wait_ready(int fd, short events, const Wait& wait);

// The timeout argument of poll(2) for a deadline: rounded up, at least 0, at most an hour.
int poll_timeout(MonotonicTime deadline);

}  // namespace tilewright::net
