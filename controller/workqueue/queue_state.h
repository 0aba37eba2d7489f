// The state of the work queue: which keys are queued, delayed or being processed. Plain data
// without threads, locks or clock; WorkQueue adds them.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"

namespace tilewright::workqueue {

// High-priority keys are taken first. After three of them in a row one normal key is taken, if
// there is one, so that normal keys do not starve.
enum class Priority { kNormal, kHigh };

// The semantics of client-go's workqueue: at most one worker processes a key at a time. Adding a
// key that is already queued can only raise its priority. A key that is added while it is being
// processed is queued again after done().
class QueueState {
 public:
  void add(const std::string& key, MonotonicTime now, Priority priority = Priority::kNormal);
  // Adds the key at `due`. After several calls for a key, the earliest time and the highest
  // priority apply.
  void add_at(const std::string& key, MonotonicTime due, MonotonicTime now,
              Priority priority = Priority::kNormal);
  // Moves the keys that are due into the queue.
  void advance(MonotonicTime now);
  // The oldest key of the highest priority, if there is one. It is being processed until done().
  std::optional<std::string> take(MonotonicTime now);
  // `key` must have been taken.
  void done(const std::string& key);

  // Drops the delayed keys and ignores further additions. Queued keys can still be taken.
  void close();
  bool closed() const { return closed_; }

  // The earliest due time.
  std::optional<MonotonicTime> next_due() const;
  std::size_t depth() const {
    return lane(Priority::kNormal).size() + lane(Priority::kHigh).size();
  }
  std::size_t processing() const { return processing_.size(); }
  // The longest time that a key has been queued, and that a key has been processed.
  Duration oldest_queued(MonotonicTime now) const;
  Duration longest_processing(MonotonicTime now) const;

  // Aborts if an invariant below does not hold. For tests.
  void check_invariants() const;

 private:
  // Invariants:
  //   dirty_ holds the keys that need processing, processing_ those that a worker has taken; a key
  //   may be in both.
  //   lanes_ hold each key of dirty_ that is not in processing_ exactly once, in the lane of its
  //   priority, oldest first.
  //   due_by_key_ and keys_by_due_ hold the same pairs; a key has at most one due time, and may be
  //   dirty as well.
  //   closed_ implies that due_by_key_ is empty.
  using Lane = std::deque<std::string>;
  Lane& lane(Priority priority) { return lanes_[static_cast<std::size_t>(priority)]; }
  const Lane& lane(Priority priority) const { return lanes_[static_cast<std::size_t>(priority)]; }

  struct Entry {
    MonotonicTime when;
    Priority priority;
  };
  std::array<Lane, 2> lanes_;
  int high_in_a_row_ = 0;
  std::map<std::string, Entry> dirty_;               // with the time of the addition
  std::map<std::string, MonotonicTime> processing_;  // with the time of take()
  std::map<std::string, Entry> due_by_key_;
  std::set<std::pair<MonotonicTime, std::string>> keys_by_due_;
  bool closed_ = false;
};

}  // namespace tilewright::workqueue
