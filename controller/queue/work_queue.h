// The work queue that the controller's workers share: keys of objects to reconcile, each in one
// worker's hands at a time, with delays and a back-off for keys that fail.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <variant>

#include "common/base/clock.h"
#include "controller/queue/backoff.h"
#include "controller/queue/queue_state.h"

namespace tilewright::queue {

// For metrics: called with the lock held, so they may not call the queue.
struct QueueObserver {
  std::function<void(Duration waited)> taken;  // from add to take
  std::function<void(Duration worked)> done;   // from take to done
};

struct QueueFigures {
  std::size_t depth = 0;
  std::size_t delayed = 0;
  std::size_t working = 0;
  std::uint64_t adds = 0;
  std::uint64_t retries = 0;  // calls of add_rate_limited
  Duration oldest_queued{};
  Duration longest_working{};
};

// Thread-safe.
class WorkQueue {
 public:
  using Clock = std::function<MonotonicTime()>;
  struct TimedOut {};
  struct ShutDown {};
  using Taken = std::variant<std::string, TimedOut, ShutDown>;

  // `clock` is what dues and ages are read from.
  explicit WorkQueue(Backoff backoff = Backoff(), QueueObserver observer = {},
                     Clock clock = monotonic_now);

  void add(const std::string& key, Urgency urgency = Urgency::kOrdinary);
  void add_after(const std::string& key, Duration delay, Urgency urgency = Urgency::kOrdinary);
  // As add_after, with the key's own back-off. forget() on success, or the delays keep growing.
  void add_rate_limited(const std::string& key);
  void forget(const std::string& key);
  std::size_t failures(const std::string& key) const;

  // Waits for a key until the deadline (of the clock). Whoever gets one calls done() with it.
  // ShutDown only when nothing is left in the queue.
  Taken take(MonotonicTime deadline);
  void done(const std::string& key);

  // Nothing is added from here on, delayed keys are dropped, queued ones are still handed out.
  void shut_down();
  // shut_down(), then waits until nothing is queued or worked on; false at the deadline.
  bool drain(MonotonicTime deadline);

  // Wakes whoever waits, after a clock of one's own was moved.
  void clock_moved();

  QueueFigures figures() const;

 private:
  // All with the lock held.
  void wait(std::condition_variable& news, std::unique_lock<std::mutex>& lock, MonotonicTime until);
  void wake_one();
  void wake_all();
  void add_at(const std::string& key, MonotonicTime due, Urgency urgency, MonotonicTime now);

  const Clock clock_;
  const QueueObserver observer_;
  mutable std::mutex mutex_;
  // Of those in take(), one keeps the time of the next key that falls due, the others await keys:
  // nobody is woken who has nothing to do.
  std::condition_variable timer_, ready_;
  bool timed_ = false;            // somebody waits for timer_
  int followers_ = 0;             // wait for ready_
  std::condition_variable idle_;  // for drain()
  QueueState state_;
  Backoff backoff_;
  std::uint64_t retries_ = 0;
};

}  // namespace tilewright::queue
