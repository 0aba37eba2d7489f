// A thread-safe work queue of keys to reconcile, with delays, priorities and back-off per key. At
// most one worker processes a key at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <variant>

#include "common/base/clock.h"
#include "controller/workqueue/backoff.h"
#include "controller/workqueue/queue_state.h"

namespace tilewright::workqueue {

struct QueueStats {
  std::size_t depth = 0;
  std::size_t processing = 0;
  std::uint64_t retries = 0;  // calls of add_rate_limited
  Duration oldest_queued{};
  Duration longest_processing{};
};

// Thread-safe.
class WorkQueue {
 public:
  using Clock = std::function<MonotonicTime()>;
  struct TimedOut {};
  struct ShutDown {};
  using Taken = std::variant<std::string, TimedOut, ShutDown>;

  // `clock` is used for due times and ages.
  explicit WorkQueue(Backoff backoff = Backoff(), Clock clock = monotonic_now);

  void add(const std::string& key, Priority priority = Priority::kNormal);
  void add_after(const std::string& key, Duration delay, Priority priority = Priority::kNormal);
  // add_after() with the back-off of the key, or `at_least` if that is longer. Call forget() on
  // success to reset the back-off.
  void add_rate_limited(const std::string& key, Duration at_least = Duration::zero());
  void forget(const std::string& key);

  // Waits for a key until `deadline`. The caller must call done() for the returned key. Returns
  // ShutDown once the queue is shut down and empty.
  Taken take(MonotonicTime deadline);
  void done(const std::string& key);

  // Ignores further additions and drops delayed keys. Queued keys are still returned by take().
  void shut_down();

  QueueStats stats() const;

 private:
  // All require the lock.
  void wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
            MonotonicTime until);
  void wake_one();
  void add_at(const std::string& key, MonotonicTime due, Priority priority, MonotonicTime now);

  const Clock clock_;
  mutable std::mutex mutex_;
  // One of the threads in take() waits for the next due time (timer_), the others for keys
  // (ready_), so that no thread is woken without work.
  std::condition_variable timer_, ready_;
  bool timer_armed_ = false;  // a thread waits for timer_
  int ready_waiters_ = 0;     // threads that wait for ready_
  QueueState state_;
  Backoff backoff_;
  std::uint64_t retries_ = 0;
};

}  // namespace tilewright::workqueue
