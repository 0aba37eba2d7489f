// The observed workers, sorted by index once for all policies, and helpers that the policies share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/policy/elasticity.h"
#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::policy {

struct JobState {
  const Observed& observed;
  WallTime now;
  Sizes sizes;
  std::map<int, const Worker*> workers;  // by index, 0 to desired - 1
  std::vector<const Worker*> surplus;    // index too high, or the second worker of its index
};

JobState classify(const Observed& observed, WallTime now);

// Collects the times at which a reconcile is due without an event.
class Timer {
 public:
  explicit Timer(WallTime now) : now_(now) {}
  // True if `time` has passed; otherwise stores it for requeue_after().
  bool due(WallTime time);
  // Duration until the earliest stored time.
  std::optional<WallTime::duration> requeue_after() const;

 private:
  WallTime now_;
  std::optional<WallTime> next_;
};

enum class JobEndCause {
  kTrainingComplete,  // the job succeeded; with any other cause it failed
  kDeadlineExceeded,
  kRestartPolicyNever,
  kPermanentExitCode,
  kRestartLimit,
  kOutOfMemory,
  kCheckpointMissing,
  kDiverged,
  kInvalidFlags,
  kOutputRefused,
};

// The end of a job that a policy has decided on.
struct JobEnd {
  JobEndCause cause = JobEndCause::kTrainingComplete;
  std::optional<api::FailureRecord> failure;  // the final one, if a failure is the cause
  std::int64_t restarts = 0;                  // kRestartLimit: restarts used
};

api::Phase phase_of(const JobEnd& end);

bool has_ended(const Worker& worker);
// True if the worker and every other container of its pod have ended.
bool pod_has_ended(const Worker& worker);
// True if the node does not report and the worker's heartbeats have stopped. The worker then counts
// as dead, although its pod is still Running or Pending. Foreign programs send no heartbeats and
// may still run, so their pods are left to the node controller, as with Kubeflow's operator.
bool is_lost(const JobState& state, const Worker& worker);
// Requeues the job if a worker's node does not report but its heartbeats have not stopped yet,
// because no event reports the end of the heartbeats.
void schedule_silence_check(const JobState& state, Timer& timer);
// True if the worker's failure is already in the status or a plan has deleted the worker.
bool is_counted(const api::TrainJobStatus& status, const std::string& uid);
// Call it, and write the status, before a plan deletes the worker.
void mark_counted(api::TrainJobStatus& status, const std::string& uid);

WorkerDeletion deletion_of(const JobState& state, const Worker& worker, DeletionReason reason);

}  // namespace tilewright::policy
