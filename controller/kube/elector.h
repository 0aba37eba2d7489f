// Leader election by a Lease as a pure state machine: what to do next, and until when this process
// may write. leader_election.h drives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "controller/kube/jitter.h"
#include "controller/kube/lease_record.h"

namespace tilewright::kube {

// client-go's defaults. lease_duration > renew_deadline > retry_period: between the moment a leader
// stops writing and the moment another may begin lie lease_duration - renew_deadline.
struct ElectorSettings {
  std::string
      identity;  // of this process, not only of its host: it must never have been used before
  Duration lease_duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};

//   candidate --read--> held by another and alive --------------> wait, read again
//       |                  | its record has not changed for lease_duration of *our* clock,
//       |                  v or it names nobody, or this process
//       |               update (with the resourceVersion that was read) --conflict--> read again
//       | not found        | done
//       v                  v
//     create --done--> leader until `sent + renew_deadline`; updates every retry_period.
//
// Clocks of two machines are never compared: the times in the record are for people.
class Elector {
 public:
  Elector(ElectorSettings settings, Jitter jitter);

  struct Act {
    enum class Kind { kWait, kRead, kCreate, kUpdate };
    Kind kind = Kind::kWait;
    MonotonicTime until;           // of the wait, or when to give the request up
    LeaseRecord record;            // to write
    std::string resource_version;  // kUpdate: of the lease as it was read or written last
  };
  // What to do now. After a request one of the calls below tells how it went.
  Act next(MonotonicTime now, WallTime wall);

  void read(MonotonicTime now, const LeaseRecord& record, const std::string& resource_version);
  void absent(MonotonicTime now);
  // `sent`: when the request began, since the lease may count from then.
  void written(MonotonicTime sent, MonotonicTime now, const LeaseRecord& record,
               const std::string& resource_version);
  // Of any request; it may have been done all the same.
  void failed(MonotonicTime now, bool conflict);

  bool leading(MonotonicTime now) const { return leading_ && now < valid_until_; }
  // No write after it; meaningless unless leading.
  MonotonicTime valid_until() const { return valid_until_; }
  // Who holds the lease as last seen; empty: nobody, or not seen yet.
  const std::string& holder() const { return record_.holder; }
  // The update that gives the lease up, so that another need not wait for its end; nothing if this
  // process does not hold it. Writing must have ended before.
  std::optional<Act> release(MonotonicTime now, WallTime wall);

 private:
  bool mine() const { return record_.holder == settings_.identity; }
  bool takeable(MonotonicTime now) const;
  Duration candidate_delay() const;

  enum class Known { kNothing, kAbsent, kRecord };

  const ElectorSettings settings_;
  const Jitter jitter_;
  Known known_ = Known::kNothing;
  bool fresh_ = false;  // what is known was read since the last wait, so it may be acted upon
  LeaseRecord record_;
  std::string resource_version_;
  MonotonicTime since_;     // when this process first saw the record as it is
  MonotonicTime next_try_;  // nothing is done before it
  bool leading_ = false;
  MonotonicTime valid_until_;
};

}  // namespace tilewright::kube
