#include "controller/policy/restarts.h"

#include <algorithm>

#include "common/base/exit_codes.h"
#include "controller/policy/failure.h"
#include "controller/policy/messages.h"

namespace tilewright::policy {
namespace {

using api::FailureCause;
using api::FailureRecord;
using std::chrono::seconds;

constexpr seconds kInitialDelay{1};
constexpr seconds kMaxDelay{300};
constexpr seconds kBackoffResetAfter{600};  // as in a kubelet's CrashLoopBackOff

// A failure that is not in the status yet.
struct NewFailure {
  const Worker* worker;  // null: it disappeared
  FailureRecord record;
};

// True if the coordinator no longer accepts the worker's key, so it cannot join a later epoch.
bool has_stale_key(const JobState& state, const Worker& worker) {
  const std::string& wanted = state.observed.key_id;
  return runs_tilewright(state.observed) && !worker.key_id.empty() && !wanted.empty() &&
         worker.key_id != wanted;
}

std::optional<FailureKind> failure_kind_of(const JobState& state, const Worker& worker) {
  if (worker.phase == WorkerPhase::kSucceeded) return std::nullopt;
  if (worker.phase == WorkerPhase::kFailed && !worker.terminating) return FailureKind::kExited;
  if (worker.terminating) {
    // The exit code results from the deletion and does not matter.
    return is_lost(state, worker) ? FailureKind::kNodeLost : FailureKind::kDeleted;
  }
  if (is_lost(state, worker)) return FailureKind::kNodeLost;
  if (has_stale_key(state, worker)) return FailureKind::kStaleKey;
  return std::nullopt;
}

// Finds workers that the status counts as existing and whose end was not observed: they were
// deleted by force while no leader was watching. Their UIDs are unknown. Each is found once,
// because the next status counts only the workers that exist now.
std::vector<NewFailure> find_missing_workers(const JobState& state,
                                             const api::TrainJobStatus& status) {
  std::int64_t known = 0;
  for (const Worker& worker : state.observed.workers) {
    if (!is_counted(status, worker.uid)) ++known;
  }
  std::int64_t missing = status.replicas.active + status.replicas.succeeded - known;
  // After a scale-down the missing worker may be one that the job no longer needs.
  if (state.sizes.desired < status.replicas.desired) missing = 0;
  std::vector<NewFailure> found;
  for (int index = 0; index < state.sizes.desired && missing > 0; ++index) {
    if (state.workers.contains(index)) continue;
    Worker missing_worker;
    missing_worker.index = index;
    missing_worker.name = worker_name(state.observed.job, state.observed.traits, index);
    found.push_back({nullptr, failure_of(state.observed, missing_worker, FailureKind::kDisappeared,
                                         state.now)});
    --missing;
  }
  return found;
}

const FailureRecord* last_oom_failure(const api::TrainJobStatus& status) {
  const auto found = std::find_if(
      status.failures.rbegin(), status.failures.rend(),
      [](const FailureRecord& record) { return record.cause == FailureCause::kOutOfMemory; });
  return found == status.failures.rend() ? nullptr : &*found;
}

std::int64_t exit_code_of(const FailureRecord& record) {
  return record.signal ? kSignalExitCodeBase + *record.signal : record.exit_code.value_or(0);
}

// Returns std::nullopt if the worker restarts or waits for a change of the job.
std::optional<JobEnd> apply_restart_policy(const JobState& state, const api::TrainJobStatus& status,
                                           const FailureRecord& record) {
  const api::TrainJob& job = state.observed.job;
  const JobTraits& traits = state.observed.traits;
  auto policy = job.spec.worker.restart_policy.value_or(api::RestartPolicy::kOnFailure);
  if (traits.has_master && record.index == 0) {
    policy = traits.master_restart_policy.value_or(policy);
  }
  if (policy == api::RestartPolicy::kNever) {
    return JobEnd{JobEndCause::kRestartPolicyNever, record, 0};
  }
  if (record.cause == FailureCause::kInfrastructure) return std::nullopt;
  if (record.cause == FailureCause::kOutOfMemory) {
    const FailureRecord* before = last_oom_failure(status);
    if (state.observed.runtime.job_can_change || before == nullptr || record.step > before->step) {
      return std::nullopt;
    }
    return JobEnd{JobEndCause::kOutOfMemory, record, 0};
  }
  if (record.reason == failure_reason::kCheckpointMissing) {
    if (state.observed.runtime.job_can_change) return std::nullopt;
    return JobEnd{JobEndCause::kCheckpointMissing, record, 0};
  }
  // The restarted training computes the same steps. Its flags cannot change.
  if (record.reason == failure_reason::kDiverged && api::is_exact(job)) {
    return JobEnd{JobEndCause::kDiverged, record, 0};
  }
  // Flags, variables and output of a TrainJob cannot change.
  if (record.reason == failure_reason::kInvalidFlags) {
    return JobEnd{JobEndCause::kInvalidFlags, record, 0};
  }
  if (record.reason == failure_reason::kOutputRefused) {
    return JobEnd{JobEndCause::kOutputRefused, record, 0};
  }
  if (policy == api::RestartPolicy::kExitCode && exit_code_of(record) < kFirstRetryableExitCode) {
    return JobEnd{JobEndCause::kPermanentExitCode, record, 0};
  }
  const std::int64_t limit =
      job.spec.elastic_policy.max_restarts.value_or(api::kDefaultMaxRestarts);
  if (status.restarts.program >= limit) {
    return JobEnd{JobEndCause::kRestartLimit, record, status.restarts.program};
  }
  return std::nullopt;
}

// True if a restart would only repeat the failure, so the worker waits for a change of the job.
bool waits_for_change(const JobState& state, const api::TrainJobStatus& status,
                      const FailureRecord& record) {
  if (!state.observed.runtime.job_can_change) return false;
  if (record.reason == failure_reason::kCheckpointMissing) return true;
  if (record.cause != FailureCause::kOutOfMemory) return false;
  const FailureRecord* before = last_oom_failure(status);
  return before != nullptr && record.step <= before->step;
}

void count_restart(api::RestartCounts& restarts, FailureCause cause) {
  const auto count = [](std::int64_t& number) {
    number = std::min(number + 1, api::RestartCounts::kMax);
  };
  switch (cause) {
    case FailureCause::kProgram:
      return count(restarts.program);
    case FailureCause::kInfrastructure:
      return count(restarts.infrastructure);
    case FailureCause::kOutOfMemory:
      return count(restarts.out_of_memory);
  }
}

void append_failure(api::TrainJobStatus& status, FailureRecord record) {
  status.failures.push_back(std::move(record));
  if (status.failures.size() > api::kFailureHistoryLength)
    status.failures.erase(status.failures.begin());
}

const FailureRecord* last_failure_of(const api::TrainJobStatus& status, int index) {
  const auto last =
      std::find_if(status.failures.rbegin(), status.failures.rend(),
                   [&](const FailureRecord& record) { return record.index == index; });
  return last == status.failures.rend() ? nullptr : &*last;
}

// True if the job is blocked on a failure like the worker's last one and has not changed since.
bool still_waits_for_change(const JobState& state, const api::TrainJobStatus& status, int index) {
  const api::Condition* blocked = status.find_condition(api::condition::kBlocked);
  if (blocked == nullptr || blocked->status != api::ConditionStatus::kTrue ||
      blocked->observed_generation != state.observed.job.metadata.generation) {
    return false;
  }
  const FailureRecord* last = last_failure_of(status, index);
  if (last == nullptr) return false;
  if (blocked->reason == kCheckpointMissingReason) {
    return last->reason == failure_reason::kCheckpointMissing;
  }
  return blocked->reason == kOutOfMemoryReason && last->cause == FailureCause::kOutOfMemory;
}

}  // namespace

WallTime restart_time(const api::TrainJobStatus& status, int index) {
  std::optional<WallTime> later;  // time of the failure after `record`
  WallTime last{};
  int series = 0;
  for (auto record = status.failures.rbegin(); record != status.failures.rend(); ++record) {
    if (record->index != index || !record->time) continue;
    if (!later) last = *record->time;
    if (later && *later - *record->time > kBackoffResetAfter) break;
    later = record->time;
    ++series;
  }
  if (series < 2) return last;
  // The history holds ten failures, so the shift is at most 8.
  return last + std::min(kInitialDelay * (1 << (series - 2)), kMaxDelay);
}

Restarts plan_restarts(const JobState& state, api::TrainJobStatus& status) {
  Restarts restarts;
  std::set<int> waiting;
  for (int index = 0; index < state.sizes.desired; ++index) {
    if (still_waits_for_change(state, status, index)) waiting.insert(index);
  }
  std::vector<NewFailure> new_failures = find_missing_workers(state, status);
  for (const auto& [index, worker] : state.workers) {
    const auto kind = failure_kind_of(state, *worker);
    if (!kind) continue;
    restarts.failed.push_back(worker);
    if (!is_counted(status, worker->uid)) {
      new_failures.push_back({worker, failure_of(state.observed, *worker, *kind, state.now)});
    }
    // Only a forced deletion removes a pod that is terminating on a dead node.
    if (!worker->terminating || is_lost(state, *worker)) {
      restarts.deletions.push_back(deletion_of(state, *worker, DeletionReason::kFailed));
    }
  }
  std::ranges::sort(new_failures, {},
                    [](const NewFailure& failure) { return failure.record.index; });

  // Evaluate each failure with counts that include the failures before it.
  api::TrainJobStatus updated_status = status;
  for (std::size_t i = 0; i < new_failures.size(); ++i) {
    const FailureRecord& record = new_failures[i].record;
    const auto end = apply_restart_policy(state, updated_status, record);
    if (end && !restarts.end) restarts.end = end;
    if (waits_for_change(state, updated_status, record)) {
      restarts.waits_for_spec_change.insert(static_cast<int>(record.index));
    }
    if (!end) count_restart(updated_status.restarts, record.cause);
    append_failure(updated_status, record);
    if (new_failures[i].worker != nullptr)
      mark_counted(updated_status, new_failures[i].worker->uid);
  }
  // Neither the failure that ends the job nor those found with it restart a worker.
  if (restarts.end) updated_status.restarts = status.restarts;
  status = std::move(updated_status);

  for (int index = 0; index < state.sizes.desired; ++index) {
    restarts.not_before[index] = restart_time(status, index);
    if (waiting.contains(index)) restarts.waits_for_spec_change.insert(index);
  }
  return restarts;
}

}  // namespace tilewright::policy
