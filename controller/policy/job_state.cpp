#include "controller/policy/job_state.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/contract/labels.h"

namespace tilewright::policy {
namespace {

// True if `a` represents its index and `b` is surplus. Names are deterministic, so an index
// normally has one worker, but an older version of the operator or a stale cache might show two.
// Order of preference: succeeded, not terminating, running; the UID breaks ties.
bool outranks(const Worker& a, const Worker& b) {
  const auto rank = [](const Worker& worker) {
    return std::make_tuple(worker.phase == WorkerPhase::kSucceeded, !worker.terminating,
                           worker.phase == WorkerPhase::kRunning, worker.uid);
  };
  return rank(a) > rank(b);
}

}  // namespace

std::string worker_name(const api::TrainJob& job, const JobTraits& traits, int index) {
  if (!traits.has_master) return api::worker_name(job, index);
  return index == 0 ? job.metadata.name + kMasterInfix + "0" : api::worker_name(job, index - 1);
}

bool runs_tilewright(const Observed& observed) {
  return observed.traits.runs_tilewright || observed.job.status.rendezvous_epoch > 0 ||
         (observed.rendezvous && observed.rendezvous->latest_epoch > 0);
}

JobState classify(const Observed& observed, WallTime now) {
  JobState state{observed, now, sizes_of(observed.job), {}, {}};
  for (const Worker& worker : observed.workers) {
    if (worker.index < 0 || worker.index >= state.sizes.desired) {
      state.surplus.push_back(&worker);
      continue;
    }
    const Worker*& entry = state.workers[worker.index];
    if (entry == nullptr) {
      entry = &worker;
    } else if (outranks(worker, *entry)) {
      state.surplus.push_back(std::exchange(entry, &worker));
    } else {
      state.surplus.push_back(&worker);
    }
  }
  std::ranges::sort(state.surplus, {},
                    [](const Worker* worker) { return std::tie(worker->index, worker->uid); });
  return state;
}

bool Timer::due(WallTime time) {
  if (time <= now_) return true;
  next_ = next_ ? std::min(*next_, time) : time;
  return false;
}

std::optional<WallTime::duration> Timer::requeue_after() const {
  if (!next_) return std::nullopt;
  return *next_ - now_;
}

api::Phase phase_of(const JobEnd& end) {
  return end.cause == JobEndCause::kTrainingComplete ? api::Phase::kSucceeded : api::Phase::kFailed;
}

bool has_ended(const Worker& worker) {
  return worker.phase == WorkerPhase::kSucceeded || worker.phase == WorkerPhase::kFailed;
}

bool pod_has_ended(const Worker& worker) { return has_ended(worker) && !worker.pod_still_running; }

bool is_lost(const JobState& state, const Worker& worker) {
  if (worker.node_state == NodeState::kReady || pod_has_ended(worker) || !state.observed.rendezvous)
    return false;
  if (!runs_tilewright(state.observed)) return false;
  const auto& members = state.observed.rendezvous->members;
  const auto member = members.find(worker.index);
  return member != members.end() && member->second.silent;
}

void schedule_silence_check(const JobState& state, Timer& timer) {
  // The default heartbeat timeout of the coordinator.
  constexpr std::chrono::seconds kRecheckInterval{10};
  if (!runs_tilewright(state.observed)) return;
  const bool any = std::ranges::any_of(state.observed.workers, [&](const Worker& worker) {
    return !worker.node.empty() && worker.node_state != NodeState::kReady &&
           !pod_has_ended(worker) && !is_lost(state, worker);
  });
  if (any) timer.due(state.now + kRecheckInterval);
}

bool is_counted(const api::TrainJobStatus& status, const std::string& uid) {
  return std::ranges::find(status.counted_pods, uid) != status.counted_pods.end();
}

void mark_counted(api::TrainJobStatus& status, const std::string& uid) {
  if (!is_counted(status, uid)) status.counted_pods.push_back(uid);
}

WorkerDeletion deletion_of(const JobState& state, const Worker& worker, DeletionReason reason) {
  return {worker.name, worker.index, worker.uid, is_lost(state, worker), reason};
}

}  // namespace tilewright::policy
