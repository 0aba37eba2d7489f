// Leave to write: every mutating request passes one and is refused once it has run out. A leader's
// guard runs out by itself, on the monotonic clock, before another process can become leader.
#pragma once

#include <atomic>

#include "common/base/clock.h"

namespace tilewright::kube {

// Thread-safe. One object a term of leadership: once expired or revoked it never opens again, so a
// thread left over from an earlier term cannot write in a later one.
class WriteGuard {
 public:
  explicit WriteGuard(MonotonicTime valid_until) : until_(ticks(valid_until)) {}
  // For who needs no leave: the elector itself, tools on a command line, tests.
  static WriteGuard unfenced() { return WriteGuard(MonotonicTime::max()); }

  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  bool permits(MonotonicTime now) const { return now < valid_until(); }
  MonotonicTime valid_until() const {
    return MonotonicTime(Duration(until_.load(std::memory_order_acquire)));
  }

  // After a renewal at `now`. False, and without effect, if the guard had run out before it.
  bool extend(MonotonicTime now, MonotonicTime valid_until) {
    auto current = until_.load(std::memory_order_acquire);
    do {
      if (ticks(now) >= current) return false;
      if (ticks(valid_until) <= current) return true;
    } while (!until_.compare_exchange_weak(current, ticks(valid_until)));
    return true;
  }
  void revoke() { until_.store(ticks(MonotonicTime::min()), std::memory_order_release); }

 private:
  static Duration::rep ticks(MonotonicTime time) { return time.time_since_epoch().count(); }
  std::atomic<Duration::rep> until_;
};

}  // namespace tilewright::kube
