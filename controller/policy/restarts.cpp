#include "controller/policy/restarts.h"

#include <algorithm>

#include "common/base/exit_codes.h"
#include "controller/policy/failure.h"
#include "controller/policy/messages.h"
#include "controller/policy/success.h"

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

std::optional<FailureKind> failure_kind_of(const JobState& state, const api::TrainJobStatus& status,
                                           const Worker& worker) {
  if (has_succeeded(state, status, worker.index)) return std::nullopt;
  // With code 0 and without success: its node has stopped it.
  const bool has_exited =
      worker.phase == WorkerPhase::kFailed || worker.phase == WorkerPhase::kSucceeded;
  if (has_exited && !worker.terminating) return FailureKind::kExited;
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
  std::int64_t known = deleted_successes(state, status);
  for (const Worker& worker : state.observed.workers) {
    if (!is_counted(status, worker.uid)) ++known;
  }
  std::int64_t missing = status.replicas.active + status.replicas.succeeded - known;
  // After a scale-down the missing worker may be one that the job no longer needs.
  if (state.sizes.desired < status.replicas.desired) missing = 0;
  std::vector<NewFailure> found;
  for (int index = 0; index < state.sizes.desired && missing > 0; ++index) {
    if (state.workers.contains(index) || has_succeeded(state, status, index)) continue;
    Worker missing_worker;
    missing_worker.index = index;
    missing_worker.name = worker_name(state.observed.job, state.observed.traits, index);
    found.push_back({nullptr, failure_of(state.observed, missing_worker, FailureKind::kDisappeared,
                                         state.now)});
    --missing;
  }
  return found;
}

const api::FailingWorker* find_failing_worker(const api::TrainJobStatus& status,
                                              std::int64_t index) {
  const auto found = std::ranges::find(status.failing_workers, index, &api::FailingWorker::index);
  return found == status.failing_workers.end() ? nullptr : &*found;
}

// True if the job has completed no step since the worker's previous OOM kill.
bool repeats_oom_kill(const api::TrainJobStatus& status, const FailureRecord& record) {
  if (record.cause != FailureCause::kOutOfMemory) return false;
  const api::FailingWorker* failing = find_failing_worker(status, record.index);
  return failing != nullptr && failing->out_of_memory_step &&
         record.step <= *failing->out_of_memory_step;
}

std::int64_t exit_code_of(const FailureRecord& record) {
  return record.signal ? kSignalExitCodeBase + *record.signal : record.exit_code.value_or(0);
}

// True if the program may have failed because another worker had failed: in the same reconcile, or
// since the job last ran. Not if the worker itself was created since then.
bool follows_another_failure(const api::TrainJobStatus& status, const NewFailure& failure,
                             bool others_failed) {
  if (failure.record.cause != FailureCause::kProgram) return false;
  if (others_failed) return true;
  const api::Condition* restarting = status.find_condition(api::condition::kRestarting);
  return restarting != nullptr && restarting->status == api::ConditionStatus::kTrue &&
         failure.worker != nullptr && failure.worker->created &&
         failure.worker->created < restarting->last_transition_time;
}

// Returns std::nullopt if the worker restarts or waits for a change of the job. `counts`: the
// restart counts against the limit.
std::optional<JobEnd> apply_restart_policy(const JobState& state, const api::TrainJobStatus& status,
                                           const FailureRecord& record, bool counts) {
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
    if (state.observed.runtime.job_can_change || !repeats_oom_kill(status, record)) {
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
  if (counts && status.restarts.program >= limit) {
    return JobEnd{JobEndCause::kRestartLimit, record, status.restarts.program};
  }
  return std::nullopt;
}

// True if a restart would only repeat the failure, so the worker waits for a change of the job.
bool waits_for_change(const JobState& state, const api::TrainJobStatus& status,
                      const FailureRecord& record) {
  if (!state.observed.runtime.job_can_change) return false;
  return record.reason == failure_reason::kCheckpointMissing || repeats_oom_kill(status, record);
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

bool still_waits(const JobState& state, const api::FailingWorker& failing) {
  return failing.waits_generation != 0 &&
         failing.waits_generation == state.observed.job.metadata.generation;
}

void count_failure(const JobState& state, api::TrainJobStatus& status, const FailureRecord& record,
                   bool waits_for_change) {
  auto& all = status.failing_workers;
  auto entry = std::ranges::find(all, record.index, &api::FailingWorker::index);
  if (entry == all.end()) {
    entry = all.insert(entry, api::FailingWorker{});
    entry->index = record.index;
  }
  const WallTime time = record.time.value_or(state.now);
  const bool continues = entry->last_failure && time - *entry->last_failure <= kBackoffResetAfter;
  entry->failures = continues ? std::min(entry->failures + 1, api::RestartCounts::kMax) : 1;
  entry->last_failure = time;
  if (record.cause == FailureCause::kOutOfMemory) entry->out_of_memory_step = record.step;
  entry->waits_generation = waits_for_change ? state.observed.job.metadata.generation : 0;
}

// Removes the workers whose next failure is like a first one.
void forget_old_failures(const JobState& state, api::TrainJobStatus& status) {
  const std::int64_t step = status.progress ? status.progress->step : -1;
  std::erase_if(status.failing_workers, [&](const api::FailingWorker& failing) {
    const bool recent =
        failing.last_failure && state.now - *failing.last_failure <= kBackoffResetAfter;
    const bool has_progressed = !failing.out_of_memory_step || step > *failing.out_of_memory_step;
    return !recent && has_progressed && !still_waits(state, failing);
  });
}

}  // namespace

WallTime restart_time(const api::TrainJobStatus& status, int index) {
  const api::FailingWorker* failing = find_failing_worker(status, index);
  if (failing == nullptr || !failing->last_failure) return WallTime{};
  if (failing->failures < 2) return *failing->last_failure;
  constexpr std::int64_t kMaxDoublings = 9;  // the delay is then longer than kMaxDelay
  const auto doublings = static_cast<int>(std::min(failing->failures - 2, kMaxDoublings));
  return *failing->last_failure + std::min(kInitialDelay * (1 << doublings), kMaxDelay);
}

Restarts plan_restarts(const JobState& state, api::TrainJobStatus& status) {
  Restarts restarts;
  forget_old_failures(state, status);
  std::vector<NewFailure> new_failures = find_missing_workers(state, status);
  for (const auto& [index, worker] : state.workers) {
    const auto kind = failure_kind_of(state, status, *worker);
    if (!kind) continue;
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
  bool others_failed = std::ranges::any_of(new_failures, [](const NewFailure& failure) {
    return failure.record.cause != FailureCause::kProgram;
  });
  for (std::size_t i = 0; i < new_failures.size(); ++i) {
    const FailureRecord& record = new_failures[i].record;
    const bool counts = !follows_another_failure(status, new_failures[i], others_failed);
    others_failed = true;
    const auto end = apply_restart_policy(state, updated_status, record, counts);
    if (end && !restarts.end) restarts.end = end;
    count_failure(state, updated_status, record, waits_for_change(state, updated_status, record));
    if (!end && counts) count_restart(updated_status.restarts, record.cause);
    append_failure(updated_status, record);
    if (new_failures[i].worker != nullptr)
      mark_counted(updated_status, new_failures[i].worker->uid);
  }
  // Neither the failure that ends the job nor those found with it restart a worker.
  if (restarts.end) updated_status.restarts = status.restarts;
  status = std::move(updated_status);

  for (int index = 0; index < state.sizes.desired; ++index) {
    restarts.not_before[index] = restart_time(status, index);
    const api::FailingWorker* failing = find_failing_worker(status, index);
    if (failing != nullptr && still_waits(state, *failing)) {
      restarts.waits_for_spec_change.insert(index);
    }
  }
  return restarts;
}

}  // namespace tilewright::policy
