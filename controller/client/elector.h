// Leader election with a Lease as a pure state machine: it returns the next action and the time
// until which this process may write. leader_election.h executes the actions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "controller/client/jitter.h"
#include "controller/client/lease_record.h"

namespace tilewright::kube {

// Defaults of client-go. Required: lease_duration > renew_deadline > retry_period. After a leader
// stops writing, lease_duration - renew_deadline pass before another replica may start.
struct ElectorSettings {
  std::string identity;  // unique to this process; must not be reused after a restart
  Duration lease_duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};

//   candidate --read--> held by another and not expired --------> wait, read again
//       |                  | record unchanged for lease_duration on the local clock,
//       |                  v or no holder, or held by this process
//       |               update (with the resourceVersion that was read) --conflict--> read again
//       | not found        | success
//       v                  v
//     create --success--> leader until `sent + renew_deadline`; updates every retry_period.
//
// Clocks of two machines are never compared: the times in the record are informational.
class Elector {
 public:
  Elector(ElectorSettings settings, Jitter jitter);

  struct Action {
    enum class Kind { kWait, kRead, kCreate, kUpdate };
    Kind kind = Kind::kWait;
    MonotonicTime until;           // end of the wait, or deadline of the request
    LeaseRecord record;            // to write
    std::string resource_version;  // kUpdate: of the lease as last read or written
  };
  // The next action. Report the result of a request with one of the functions below.
  Action next(MonotonicTime now, WallTime wall);

  void on_read(MonotonicTime now, const LeaseRecord& record, const std::string& resource_version);
  void on_absent(MonotonicTime now);
  // `sent`: start of the request. The lease is valid from then on.
  void on_written(MonotonicTime sent, MonotonicTime now, const LeaseRecord& record,
                  const std::string& resource_version);
  // A request failed. kConflict: the lease is not as last read. After kOther the request may have
  // been applied.
  enum class FailureKind { kConflict, kOther };
  void on_failed(MonotonicTime now, FailureKind kind);

  bool leading(MonotonicTime now) const { return leading_ && now < valid_until_; }
  // Writes are allowed until this time. Valid only while leading.
  MonotonicTime valid_until() const { return valid_until_; }
  // Last observed holder of the lease; empty: no holder, or not read yet.
  const std::string& holder() const { return record_.holder; }
  // The update that releases the lease, so that another replica takes over at once. std::nullopt if
  // this process does not hold it. All writes must have ended before.
  std::optional<Action> release(MonotonicTime now, WallTime wall);

 private:
  bool is_holder() const { return record_.holder == settings_.identity; }
  bool can_acquire(MonotonicTime now) const;
  Duration candidate_delay() const;

  enum class Known { kNothing, kAbsent, kRecord };

  const ElectorSettings settings_;
  const Jitter jitter_;
  Known known_ = Known::kNothing;
  bool fresh_ = false;  // the record was read after the last wait, so it may be used for an update
  LeaseRecord record_;
  std::string resource_version_;
  MonotonicTime observed_time_;  // when this process first saw the current record
  MonotonicTime next_try_;       // no action before this time
  MonotonicTime tried_;          // start of the last request
  bool leading_ = false;
  MonotonicTime valid_until_;
};

}  // namespace tilewright::kube
