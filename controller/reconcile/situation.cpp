#include "controller/reconcile/situation.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tilewright::reconcile {
namespace {

// Of two workers of one index (which deterministic names exclude, but an older program or a stale
// cache might show) the one that got further counts; the UID makes the choice stable.
bool outranks(const Worker& a, const Worker& b) {
  const auto rank = [](const Worker& worker) {
    return std::make_tuple(worker.phase == WorkerPhase::kSucceeded, !worker.terminating,
                           worker.phase == WorkerPhase::kRunning, worker.uid);
  };
  return rank(a) > rank(b);
}

}  // namespace

Situation sort(const Observed& observed, WallTime now) {
  Situation situation{observed, now, sizes_of(observed.job), {}, {}};
  for (const Worker& worker : observed.workers) {
    if (worker.index < 0 || worker.index >= situation.sizes.desired) {
      situation.surplus.push_back(&worker);
      continue;
    }
    const Worker*& place = situation.workers[worker.index];
    if (place == nullptr) {
      place = &worker;
    } else if (outranks(worker, *place)) {
      situation.surplus.push_back(std::exchange(place, &worker));
    } else {
      situation.surplus.push_back(&worker);
    }
  }
  std::ranges::sort(situation.surplus, {},
                    [](const Worker* worker) { return std::tie(worker->index, worker->uid); });
  return situation;
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

bool has_ended(const Worker& worker) {
  return worker.phase == WorkerPhase::kSucceeded || worker.phase == WorkerPhase::kFailed;
}

bool is_over(const Worker& worker) { return has_ended(worker) && !worker.pod_goes_on; }

bool is_lost(const Situation& situation, const Worker& worker) {
  if (worker.node_ready || is_over(worker) || !situation.observed.progress) return false;
  const auto& members = situation.observed.progress->members;
  const auto member = members.find(worker.index);
  return member != members.end() && member->second.silent;
}

void watch_for_silence(const Situation& situation, Timer& timer) {
  // About as long as a coordinator waits for a heartbeat.
  constexpr std::chrono::seconds kLookAgain{10};
  const bool any = std::ranges::any_of(situation.observed.workers, [&](const Worker& worker) {
    return !worker.node.empty() && !worker.node_ready && !is_over(worker) &&
           !is_lost(situation, worker);
  });
  if (any) timer.due(situation.now + kLookAgain);
}

bool is_counted(const api::TrainJobStatus& status, const std::string& uid) {
  return std::ranges::find(status.counted_pods, uid) != status.counted_pods.end();
}

void mark_counted(api::TrainJobStatus& status, const std::string& uid) {
  if (!is_counted(status, uid)) status.counted_pods.push_back(uid);
}

WorkerDeletion deletion_of(const Situation& situation, const Worker& worker, std::string why) {
  return {worker.name, worker.index, worker.uid, is_lost(situation, worker), std::move(why)};
}

}  // namespace tilewright::reconcile
