#include "controller/reconcile/success.h"

#include <fmt/format.h>

#include <algorithm>

#include "controller/reconcile/pods.h"

namespace tilewright::reconcile {
namespace {

// The others have nothing left to do but to hear that the job is over.
constexpr std::chrono::seconds kWaitForOthers{30};
// Rank 0 has reported and leaves within a moment, but kubelets tell when they can: a node that is
// away for longer than this has most likely died.
constexpr std::chrono::seconds kWaitForFirst{120};

// From the status where the rendezvous has nothing left to tell.
std::string describe(const Situation& situation) {
  const auto& heard = situation.observed.progress;
  const auto& noted = situation.observed.job.status.progress;
  std::string message = "the training is complete";
  const bool live = heard && heard->total_steps > 0;
  if (!live && !noted) return message;
  message += fmt::format(" after {} steps", live ? heard->total_steps : noted->total_steps);
  const auto& metrics = live ? heard->metrics : noted->metrics;
  const char* separator = ": ";
  for (const auto& [name, value] : metrics) {
    message += fmt::format("{}{} {:.4g}", separator, name, value);
    separator = ", ";
  }
  return message;
}

// One without a node did not, nor one of which the kubelet says what is in its way. Any other that
// is Pending may have run by now: its kubelet is about to tell.
bool never_ran(const Worker& worker) {
  return worker.phase == WorkerPhase::kPending && (worker.node.empty() || is_stuck(worker));
}

}  // namespace

void note_completion(const Situation& situation, api::TrainJobStatus& status) {
  const auto& heard = situation.observed.progress;
  if (!heard || !heard->complete || status.training_complete_time) return;
  status.training_complete_time = std::chrono::floor<std::chrono::seconds>(situation.now);
}

Success judge_success(const Situation& situation, const api::TrainJobStatus& status, Timer& timer) {
  // Until when the others are awaited.
  std::optional<WallTime> limit;
  const auto at_most = [&](WallTime time) { limit = limit ? std::min(*limit, time) : time; };
  bool all_ended = true;
  // Those beyond the wanted number, too: they ran when the job was larger.
  for (const Worker& worker : situation.observed.workers) {
    all_ended = all_ended && (has_ended(worker) || never_ran(worker));
    if (worker.phase != WorkerPhase::kSucceeded) continue;
    at_most(worker.finished.value_or(situation.now) + kWaitForOthers);
  }
  if (status.training_complete_time) at_most(*status.training_complete_time + kWaitForFirst);
  Success success;
  if (!limit) return success;
  success.decided = true;
  if (all_ended || timer.due(*limit)) {
    success.end = JobEnd{api::Phase::kSucceeded, "TrainingComplete", describe(situation)};
  }
  return success;
}

}  // namespace tilewright::reconcile
