#include "controller/workqueue/queue_state.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace tilewright::workqueue {
namespace {

constexpr int kMaxHighInARow = 3;

}  // namespace

void QueueState::add(const std::string& key, MonotonicTime now, Priority priority) {
  if (closed_) return;
  const auto [at, added] = dirty_.emplace(key, Entry{now, priority});
  const bool in_lane = !processing_.contains(key);
  if (!added) {
    if (at->second.priority >= priority) return;
    if (in_lane) std::erase(lane(at->second.priority), key);
    at->second.priority = priority;
  }
  if (in_lane) lane(priority).push_back(key);
}

void QueueState::add_at(const std::string& key, MonotonicTime due, MonotonicTime now,
                        Priority priority) {
  if (closed_) return;
  if (due <= now) return add(key, now, priority);
  const auto [at, added] = due_by_key_.emplace(key, Entry{due, priority});
  if (!added) {
    at->second.priority = std::max(at->second.priority, priority);
    if (at->second.when <= due) return;
    keys_by_due_.erase({at->second.when, key});
    at->second.when = due;
  }
  keys_by_due_.emplace(due, key);
}

void QueueState::advance(MonotonicTime now) {
  while (!keys_by_due_.empty() && keys_by_due_.begin()->first <= now) {
    const std::string key = keys_by_due_.begin()->second;
    keys_by_due_.erase(keys_by_due_.begin());
    add(key, now, due_by_key_.extract(key).mapped().priority);
  }
}

std::optional<std::string> QueueState::take(MonotonicTime now) {
  if (depth() == 0) return std::nullopt;
  Lane& high = lane(Priority::kHigh);
  Lane& normal = lane(Priority::kNormal);
  const bool take_normal = high.empty() || (high_in_a_row_ >= kMaxHighInARow && !normal.empty());
  high_in_a_row_ = take_normal ? 0 : high_in_a_row_ + 1;
  Lane& from = take_normal ? normal : high;
  std::string key = std::move(from.front());
  from.pop_front();
  dirty_.erase(key);
  processing_.emplace(key, now);
  return key;
}

void QueueState::done(const std::string& key) {
  TW_CHECK(processing_.erase(key) == 1, "done({}) without take()", key);
  const auto dirty = dirty_.find(key);
  if (dirty != dirty_.end()) lane(dirty->second.priority).push_back(key);
}

void QueueState::close() {
  closed_ = true;
  keys_by_due_.clear();
  due_by_key_.clear();
}

std::optional<MonotonicTime> QueueState::next_due() const {
  if (keys_by_due_.empty()) return std::nullopt;
  return keys_by_due_.begin()->first;
}

Duration QueueState::oldest_queued(MonotonicTime now) const {
  Duration oldest{};
  for (const Lane& lane : lanes_) {
    for (const std::string& key : lane) oldest = std::max(oldest, now - dirty_.at(key).when);
  }
  return oldest;
}

Duration QueueState::longest_processing(MonotonicTime now) const {
  Duration longest{};
  for (const auto& [key, since] : processing_) longest = std::max(longest, now - since);
  return longest;
}

void QueueState::check_invariants() const {
  std::set<std::string> queued;
  for (const Priority priority : {Priority::kNormal, Priority::kHigh}) {
    for (const std::string& key : lane(priority)) {
      TW_CHECK(queued.insert(key).second, "{} is queued twice", key);
      TW_CHECK(dirty_.contains(key) && !processing_.contains(key),
               "{} is queued but not dirty, or is being processed", key);
      TW_CHECK(dirty_.at(key).priority == priority, "{} is in the wrong lane", key);
    }
  }
  for (const auto& [key, entry] : dirty_) {
    TW_CHECK(queued.contains(key) || processing_.contains(key),
             "{} is dirty but neither queued nor being processed", key);
  }
  TW_CHECK(keys_by_due_.size() == due_by_key_.size(),
           "keys_by_due_ and due_by_key_ differ in size");
  for (const auto& [due, key] : keys_by_due_) {
    TW_CHECK(due_by_key_.at(key).when == due, "{} has two due times", key);
  }
  TW_CHECK(!closed_ || due_by_key_.empty(), "a closed queue has delayed keys");
}

}  // namespace tilewright::workqueue
