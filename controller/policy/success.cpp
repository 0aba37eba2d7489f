#include "controller/policy/success.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "controller/policy/pods.h"
#include "controller/policy/status.h"

namespace tilewright::policy {
namespace {

// Short, because the other workers only wait for the notification that the job is over.
constexpr std::chrono::seconds kOtherWorkersTimeout{30};
// Rank 0 exits right after its report, but its kubelet may report the exit late. A node that is
// silent for longer than this has most likely died.
constexpr std::chrono::seconds kFirstExitTimeout{120};

// A Pending worker without a node or with a start problem never ran. Any other Pending worker may
// have run: the report of its kubelet may be late.
bool never_ran(const Worker& worker) {
  return worker.phase == WorkerPhase::kPending && (worker.node.empty() || is_stuck(worker));
}

bool is_recorded(const JobState& state, const api::TrainJobStatus& status, int index) {
  const auto& names = status.succeeded_workers;
  return !names.empty() &&
         std::ranges::binary_search(names,
                                    worker_name(state.observed.job, state.observed.traits, index));
}

// Many programs exit with 0 on SIGTERM, so the exit of a pod that is being deleted or that its node
// has stopped shows success only if Tilewright's trainer ran in it.
bool exited_with_success(const JobState& state, int index) {
  const auto found = state.workers.find(index);
  if (found == state.workers.end() || found->second->phase != WorkerPhase::kSucceeded) return false;
  const Worker& worker = *found->second;
  const bool was_stopped =
      worker.terminating || worker.failure_cause == api::FailureCause::kInfrastructure;
  return runs_tilewright(state.observed) || !was_stopped;
}

// Whether the exits with code 0 show that the output is written, in a job whose workers do not run
// Tilewright's trainer.
bool foreign_workers_are_done(const JobState& state, const api::TrainJobStatus& status) {
  if (state.observed.traits.has_master) return has_succeeded(state, status, 0);
  int done = 0;
  for (int index = 0; index < state.sizes.desired; ++index) {
    if (has_succeeded(state, status, index)) {
      ++done;
      continue;
    }
    const auto found = state.workers.find(index);
    const bool unused = found != state.workers.end() && never_ran(*found->second) &&
                        !found->second->terminating && !has_failed(status, index);
    if (!unused) return false;
  }
  return done >= state.sizes.min;
}

}  // namespace

void record_success(const JobState& state, api::TrainJobStatus& status) {
  const auto& reported = state.observed.rendezvous;
  if (reported && reported->complete && !status.training_complete_time) {
    status.training_complete_time = std::chrono::floor<std::chrono::seconds>(state.now);
  }
  std::vector<std::string> succeeded;
  for (int index = 0; !runs_tilewright(state.observed) && index < state.sizes.desired; ++index) {
    if (!has_succeeded(state, status, index)) continue;
    succeeded.push_back(worker_name(state.observed.job, state.observed.traits, index));
  }
  std::ranges::sort(succeeded);
  status.succeeded_workers = std::move(succeeded);
}

bool has_succeeded(const JobState& state, const api::TrainJobStatus& status, int index) {
  return exited_with_success(state, index) || is_recorded(state, status, index);
}

int deleted_successes(const JobState& state, const api::TrainJobStatus& status) {
  int count = 0;
  for (int index = 0; index < state.sizes.desired; ++index) {
    count += !state.workers.contains(index) && is_recorded(state, status, index);
  }
  return count;
}

Success check_success(const JobState& state, const api::TrainJobStatus& status, Timer& timer) {
  // The end of the wait for workers that have not exited.
  std::optional<WallTime> limit;
  const auto at_most = [&](WallTime time) { limit = limit ? std::min(*limit, time) : time; };
  bool all_ended = true;
  const bool foreign_done =
      !runs_tilewright(state.observed) && foreign_workers_are_done(state, status);
  // Whether the worker's exit with code 0 shows that the output is written.
  const auto counts = [&](const Worker& worker) {
    if (runs_tilewright(state.observed)) return true;
    return foreign_done && (!state.observed.traits.has_master || worker.index == 0);
  };
  // Includes surplus workers, which ran when the job was larger.
  for (const Worker& worker : state.observed.workers) {
    all_ended = all_ended && (has_ended(worker) || never_ran(worker));
    if (worker.phase != WorkerPhase::kSucceeded || !counts(worker)) continue;
    at_most(worker.finished.value_or(state.now) + kOtherWorkersTimeout);
  }
  if (foreign_done && !limit) at_most(state.now);  // the pods of the succeeded workers are gone
  if (status.training_complete_time) at_most(*status.training_complete_time + kFirstExitTimeout);
  Success success;
  if (!limit) return success;
  success.training_complete = true;
  if (all_ended || timer.due(*limit)) {
    success.end = JobEnd{JobEndCause::kTrainingComplete, std::nullopt, 0};
  }
  return success;
}

}  // namespace tilewright::policy
