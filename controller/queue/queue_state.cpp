// The moves of a key between queued, worked on and delayed.
#include "controller/queue/queue_state.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace tilewright::queue {

void QueueState::add(const std::string& key, MonotonicTime now) {
  if (closed_ || !dirty_.emplace(key, now).second) return;
  ++adds_;
  if (!working_.contains(key)) order_.push_back(key);
}

void QueueState::add_at(const std::string& key, MonotonicTime due, MonotonicTime now) {
  if (closed_) return;
  if (due <= now) return add(key, now);
  const auto [at, added] = due_of_.emplace(key, due);
  if (!added) {
    if (at->second <= due) return;
    dues_.erase({at->second, key});
    at->second = due;
  }
  dues_.emplace(due, key);
}

void QueueState::advance(MonotonicTime now) {
  while (!dues_.empty() && dues_.begin()->first <= now) {
    const std::string key = dues_.begin()->second;
    dues_.erase(dues_.begin());
    due_of_.erase(key);
    add(key, now);
  }
}

std::optional<QueueState::Taken> QueueState::take(MonotonicTime now) {
  if (order_.empty()) return std::nullopt;
  Taken taken{std::move(order_.front()), {}};
  order_.pop_front();
  const auto dirty = dirty_.find(taken.key);
  taken.waited = now - dirty->second;
  dirty_.erase(dirty);
  working_.emplace(taken.key, now);
  return taken;
}

Duration QueueState::done(const std::string& key, MonotonicTime now) {
  const auto found = working_.find(key);
  TW_CHECK(found != working_.end(), "done with {}, which nobody took", key);
  const Duration worked = now - found->second;
  working_.erase(found);
  if (dirty_.contains(key)) order_.push_back(key);
  return worked;
}

void QueueState::close() {
  closed_ = true;
  dues_.clear();
  due_of_.clear();
}

std::optional<MonotonicTime> QueueState::next_due() const {
  if (dues_.empty()) return std::nullopt;
  return dues_.begin()->first;
}

Duration QueueState::oldest_queued(MonotonicTime now) const {
  Duration oldest{};
  for (const std::string& key : order_) oldest = std::max(oldest, now - dirty_.at(key));
  return oldest;
}

Duration QueueState::longest_working(MonotonicTime now) const {
  Duration longest{};
  for (const auto& [key, since] : working_) longest = std::max(longest, now - since);
  return longest;
}

void QueueState::check_invariants() const {
  std::set<std::string> queued;
  for (const std::string& key : order_) {
    TW_CHECK(queued.insert(key).second, "{} is queued twice", key);
    TW_CHECK(dirty_.contains(key) && !working_.contains(key), "{} is queued out of turn", key);
  }
  for (const auto& [key, since] : dirty_) {
    TW_CHECK(queued.contains(key) || working_.contains(key), "{} is lost", key);
  }
  TW_CHECK(dues_.size() == due_of_.size(), "dues and keys differ");
  for (const auto& [due, key] : dues_) TW_CHECK(due_of_.at(key) == due, "{} has two dues", key);
  TW_CHECK(!closed_ || due_of_.empty(), "a closed queue has delayed keys");
}

}  // namespace tilewright::queue
