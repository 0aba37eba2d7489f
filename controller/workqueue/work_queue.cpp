#include "controller/workqueue/work_queue.h"

#include <algorithm>
#include <utility>

namespace tilewright::workqueue {

WorkQueue::WorkQueue(Backoff backoff, Clock clock)
    : clock_(std::move(clock)), backoff_(std::move(backoff)) {}

void WorkQueue::add(const std::string& key, Priority priority) {
  const std::lock_guard lock(mutex_);
  state_.add(key, clock_(), priority);
  if (state_.depth() > 0) wake_one();
}

void WorkQueue::add_after(const std::string& key, Duration delay, Priority priority) {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  add_at(key, now + delay, priority, now);
}

void WorkQueue::add_rate_limited(const std::string& key, Duration at_least) {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  ++retries_;
  add_at(key, now + std::max(backoff_.next(key), at_least), Priority::kNormal, now);
}

void WorkQueue::add_at(const std::string& key, MonotonicTime due, Priority priority,
                       MonotonicTime now) {
  const auto before = state_.next_due();
  state_.add_at(key, due, now, priority);
  if (state_.next_due() != before || state_.depth() > 0) {
    // The thread that waits for the next due time must recompute its wait.
    timer_armed_ ? timer_.notify_one() : ready_.notify_one();
  }
}

void WorkQueue::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  backoff_.forget(key);
}

WorkQueue::Taken WorkQueue::take(MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  while (true) {
    const MonotonicTime now = clock_();
    state_.advance(now);
    auto taken = state_.take(now);
    // A thread that leaves wakes another one for the remaining keys or the next due time.
    const bool leaves = taken || state_.closed() || now >= deadline;
    if (leaves && (state_.depth() > 0 || (!timer_armed_ && state_.next_due()))) wake_one();
    if (taken) return std::move(*taken);
    if (state_.closed()) return ShutDown{};
    if (now >= deadline) return TimedOut{};
    if (timer_armed_) {
      ++ready_waiters_;
      wait(ready_, lock, deadline);
      --ready_waiters_;
    } else {
      timer_armed_ = true;
      wait(timer_, lock, std::min(deadline, state_.next_due().value_or(deadline)));
      timer_armed_ = false;
    }
  }
}

void WorkQueue::done(const std::string& key) {
  const std::lock_guard lock(mutex_);
  state_.done(key);
  if (state_.depth() > 0) wake_one();
}

void WorkQueue::shut_down() {
  const std::lock_guard lock(mutex_);
  state_.close();
  timer_.notify_all();
  ready_.notify_all();
}

QueueStats WorkQueue::stats() const {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = clock_();
  return {state_.depth(), state_.processing(), retries_, state_.oldest_queued(now),
          state_.longest_processing(now)};
}

void WorkQueue::wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                     MonotonicTime until) {
  condition.wait_for(lock, std::min(until - clock_(), kLongestWait));
}

void WorkQueue::wake_one() { (ready_waiters_ > 0 ? ready_ : timer_).notify_one(); }

}  // namespace tilewright::workqueue
