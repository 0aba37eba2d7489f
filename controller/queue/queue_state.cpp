// The moves of a key between queued, worked on and delayed.
#include "controller/queue/queue_state.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"

namespace tilewright::queue {
namespace {

constexpr int kMostUrgentInARow = 3;

}  // namespace

void QueueState::add(const std::string& key, MonotonicTime now, Urgency urgency) {
  if (closed_) return;
  const auto [at, added] = dirty_.emplace(key, Entry{now, urgency});
  const bool waits = !working_.contains(key);
  if (added) {
    ++adds_;
  } else {
    if (at->second.urgency >= urgency) return;
    if (waits) std::erase(lane(at->second.urgency), key);
    at->second.urgency = urgency;
  }
  if (waits) lane(urgency).push_back(key);
}

void QueueState::add_at(const std::string& key, MonotonicTime due, MonotonicTime now,
                        Urgency urgency) {
  if (closed_) return;
  if (due <= now) return add(key, now, urgency);
  const auto [at, added] = due_of_.emplace(key, Entry{due, urgency});
  if (!added) {
    at->second.urgency = std::max(at->second.urgency, urgency);
    if (at->second.when <= due) return;
    dues_.erase({at->second.when, key});
    at->second.when = due;
  }
  dues_.emplace(due, key);
}

void QueueState::advance(MonotonicTime now) {
  while (!dues_.empty() && dues_.begin()->first <= now) {
    const std::string key = dues_.begin()->second;
    dues_.erase(dues_.begin());
    add(key, now, due_of_.extract(key).mapped().urgency);
  }
}

std::optional<QueueState::Taken> QueueState::take(MonotonicTime now) {
  if (depth() == 0) return std::nullopt;
  Lane& urgent = lane(Urgency::kUrgent);
  Lane& ordinary = lane(Urgency::kOrdinary);
  const bool turn = urgent.empty() || (urgent_in_a_row_ >= kMostUrgentInARow && !ordinary.empty());
  urgent_in_a_row_ = turn ? 0 : urgent_in_a_row_ + 1;
  Lane& from = turn ? ordinary : urgent;
  Taken taken{std::move(from.front()), {}};
  from.pop_front();
  const auto dirty = dirty_.find(taken.key);
  taken.waited = now - dirty->second.when;
  dirty_.erase(dirty);
  working_.emplace(taken.key, now);
  return taken;
}

Duration QueueState::done(const std::string& key, MonotonicTime now) {
  const auto found = working_.find(key);
  TW_CHECK(found != working_.end(), "done with {}, which nobody took", key);
  const Duration worked = now - found->second;
  working_.erase(found);
  const auto dirty = dirty_.find(key);
  if (dirty != dirty_.end()) lane(dirty->second.urgency).push_back(key);
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
  for (const Lane& lane : lanes_) {
    for (const std::string& key : lane) oldest = std::max(oldest, now - dirty_.at(key).when);
  }
  return oldest;
}

Duration QueueState::longest_working(MonotonicTime now) const {
  Duration longest{};
  for (const auto& [key, since] : working_) longest = std::max(longest, now - since);
  return longest;
}

void QueueState::check_invariants() const {
  std::set<std::string> queued;
  for (const Urgency urgency : {Urgency::kOrdinary, Urgency::kUrgent}) {
    for (const std::string& key : lane(urgency)) {
      TW_CHECK(queued.insert(key).second, "{} is queued twice", key);
      TW_CHECK(dirty_.contains(key) && !working_.contains(key), "{} is queued out of turn", key);
      TW_CHECK(dirty_.at(key).urgency == urgency, "{} is in the wrong lane", key);
    }
  }
  for (const auto& [key, entry] : dirty_) {
    TW_CHECK(queued.contains(key) || working_.contains(key), "{} is lost", key);
  }
  TW_CHECK(dues_.size() == due_of_.size(), "dues and keys differ");
  for (const auto& [due, key] : dues_) {
    TW_CHECK(due_of_.at(key).when == due, "{} has two dues", key);
  }
  TW_CHECK(!closed_ || due_of_.empty(), "a closed queue has delayed keys");
}

}  // namespace tilewright::queue
