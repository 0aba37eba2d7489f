// The rules of the work queue as plain data: which key is worked on next, and which must wait. No
// thread, lock or clock; WorkQueue adds them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/clock.h"

namespace tilewright::queue {

// Urgent keys are taken before ordinary ones, but not so that those never come: of four in a row
// one is ordinary, if any waits.
enum class Urgency { kOrdinary, kUrgent };

// The semantics of client-go's workqueue: a key is worked on by at most one worker at a time;
// adding it again before it is taken changes nothing but that it may become urgent; adding it while
// it is being worked on makes it come once more after done().
class QueueState {
 public:
  struct Taken {
    std::string key;
    Duration waited;  // in the queue, delays of add_after apart
  };

  void add(const std::string& key, MonotonicTime now, Urgency urgency = Urgency::kOrdinary);
  // As add(), once `due` has come. Of several dues for a key the earliest counts, and the most
  // urgent.
  void add_at(const std::string& key, MonotonicTime due, MonotonicTime now,
              Urgency urgency = Urgency::kOrdinary);
  // Moves keys that are due into the queue.
  void advance(MonotonicTime now);
  // The oldest of the most urgent keys, if there is one; it counts as worked on until done().
  std::optional<Taken> take(MonotonicTime now);
  // How long it was worked on. `key` must have been taken.
  Duration done(const std::string& key, MonotonicTime now);

  // From here on nothing is added, and what is delayed is dropped; what is queued can still be
  // taken.
  void close();
  bool closed() const { return closed_; }

  // When advance() has something to do next.
  std::optional<MonotonicTime> next_due() const;
  std::size_t depth() const {
    return lane(Urgency::kOrdinary).size() + lane(Urgency::kUrgent).size();
  }
  std::size_t delayed() const { return due_of_.size(); }
  std::size_t working() const { return working_.size(); }
  std::uint64_t adds() const { return adds_; }
  // Age of the key that has been queued, and of the one that has been worked on, for longest.
  Duration oldest_queued(MonotonicTime now) const;
  Duration longest_working(MonotonicTime now) const;

  // Aborts when an invariant below does not hold; for tests.
  void check_invariants() const;

 private:
  // Invariants:
  //   dirty_ is what needs work, working_ what a worker has in hand; a key may be in both.
  //   lanes_ hold each key of dirty_ that is not in working_, exactly once, in that of its urgency,
  //   oldest first.
  //   due_of_ and dues_ hold the same pairs; a key has at most one due, and may be dirty as well.
  //   closed_ implies that due_of_ is empty.
  using Lane = std::deque<std::string>;
  Lane& lane(Urgency urgency) { return lanes_[static_cast<std::size_t>(urgency)]; }
  const Lane& lane(Urgency urgency) const { return lanes_[static_cast<std::size_t>(urgency)]; }

  struct Entry {
    MonotonicTime when;
    Urgency urgency;
  };
  std::array<Lane, 2> lanes_;
  int urgent_in_a_row_ = 0;
  std::map<std::string, Entry> dirty_;            // since when
  std::map<std::string, MonotonicTime> working_;  // since when
  std::map<std::string, Entry> due_of_;
  std::set<std::pair<MonotonicTime, std::string>> dues_;
  std::uint64_t adds_ = 0;
  bool closed_ = false;
};

}  // namespace tilewright::queue
