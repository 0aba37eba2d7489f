// Write fencing: every mutating request needs a guard and is not sent once the guard has expired.
// The guard of a leader expires on the monotonic clock before another process can become the
// leader.
#pragma once

#include <atomic>

#include "common/base/clock.h"

namespace tilewright::kube {

// Thread-safe. One object per leadership session. An expired or revoked guard never permits writes
// again, so a thread left over from an earlier session cannot write in a later one.
class WriteGuard {
 public:
  explicit WriteGuard(MonotonicTime valid_until) : until_(ticks(valid_until)) {}
  // A guard that never expires: for the elector itself, command line tools and tests.
  static WriteGuard unfenced() { return WriteGuard(MonotonicTime::max()); }

  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  bool permits(MonotonicTime now) const { return now < valid_until(); }
  MonotonicTime valid_until() const {
    return MonotonicTime(Duration(until_.load(std::memory_order_acquire)));
  }

  // After a renewal at `now`. Returns false without effect if the guard had expired before.
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
