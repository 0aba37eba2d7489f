// Lock, condition variable and clock around QueueState.
#include "controller/queue/work_queue.h"

#include <algorithm>
#include <utility>

namespace tilewright::queue {
namespace {

// Waits are cut so that neither a far deadline overflows the clock's arithmetic nor a clock of
// one's own that was moved without a word is missed for ever.
constexpr Duration kLongestNap = std::chrono::hours(1);

}  // namespace

WorkQueue::WorkQueue(Backoff backoff, QueueObserver observer, Clock clock)
    : clock_(std::move(clock)), observer_(std::move(observer)), backoff_(std::move(backoff)) {}

void WorkQueue::add(const std::string& key, Urgency urgency) {
  const std::lock_guard lock(mutex_);
  state_.add(key, clock_(), urgency);
  if (state_.depth() > 0) wake_one();
}

void WorkQueue::add_after(const std::string& key, Duration delay, Urgency urgency) {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  add_at(key, now + delay, urgency, now);
}

void WorkQueue::add_rate_limited(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  ++retries_;
  add_at(key, now + backoff_.next(key), Urgency::kOrdinary, now);
}

void WorkQueue::add_at(const std::string& key, MonotonicTime due, Urgency urgency,
                       MonotonicTime now) {
  const auto before = state_.next_due();
  state_.add_at(key, due, now, urgency);
  if (state_.next_due() != before || state_.depth() > 0) {
    // Whoever keeps the time has to wake earlier than it meant to.
    timed_ ? timer_.notify_one() : ready_.notify_one();
  }
}

void WorkQueue::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  backoff_.forget(key);
}

std::size_t WorkQueue::failures(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return backoff_.failures(key);
}

WorkQueue::Taken WorkQueue::take(MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    const MonotonicTime now = clock_();
    state_.advance(now);
    auto taken = state_.take(now);
    // Whoever leaves sees to it that the next key has somebody, and the next time.
    const bool leaves = taken || state_.closed() || now >= deadline;
    if (leaves && (state_.depth() > 0 || (!timed_ && state_.next_due()))) wake_one();
    if (taken) {
      if (observer_.taken) observer_.taken(taken->waited);
      return std::move(taken->key);
    }
    if (state_.closed()) return ShutDown{};
    if (now >= deadline) return TimedOut{};
    if (timed_) {
      ++followers_;
      wait(ready_, lock, deadline);
      --followers_;
    } else {
      timed_ = true;
      wait(timer_, lock, std::min(deadline, state_.next_due().value_or(deadline)));
      timed_ = false;
    }
  }
}

void WorkQueue::done(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const Duration worked = state_.done(key, clock_());
  if (observer_.done) observer_.done(worked);
  if (state_.depth() > 0) wake_one();
  idle_.notify_all();
}

void WorkQueue::shut_down() {
  const std::lock_guard lock(mutex_);
  state_.close();
  wake_all();
}

bool WorkQueue::drain(MonotonicTime deadline) {
  shut_down();
  std::unique_lock lock(mutex_);
  while (state_.depth() > 0 || state_.working() > 0) {
    if (clock_() >= deadline) return false;
    wait(idle_, lock, deadline);
  }
  return true;
}

void WorkQueue::clock_moved() {
  const std::lock_guard lock(mutex_);
  wake_all();
}

QueueFigures WorkQueue::figures() const {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  return {state_.depth(), state_.delayed(),          state_.working(),           state_.adds(),
          retries_,       state_.oldest_queued(now), state_.longest_working(now)};
}

void WorkQueue::wait(std::condition_variable& news, std::unique_lock<std::mutex>& lock,
                     MonotonicTime until) {
  news.wait_for(lock, std::min(until - clock_(), kLongestNap));
}

void WorkQueue::wake_one() { (followers_ > 0 ? ready_ : timer_).notify_one(); }

void WorkQueue::wake_all() {
  timer_.notify_all();
  ready_.notify_all();
  idle_.notify_all();
}

}  // namespace tilewright::queue
