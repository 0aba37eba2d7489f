#include "controller/reconcile/success.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::reconcile {
namespace {

// The others have nothing left to do but to hear that the job is over.
constexpr std::chrono::seconds kWaitForOthers{30};

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

}  // namespace

Success judge_success(const Situation& situation, Timer& timer) {
  Success success;
  const auto zero = situation.workers.find(0);
  if (zero == situation.workers.end() || zero->second->phase != WorkerPhase::kSucceeded) {
    return success;
  }
  success.decided = true;
  const bool all_ended = std::ranges::all_of(
      situation.workers, [](const auto& place) { return has_ended(*place.second); });
  const WallTime finished = zero->second->finished.value_or(situation.now);
  if (all_ended || timer.due(finished + kWaitForOthers)) {
    success.end = JobEnd{api::Phase::kSucceeded, "TrainingComplete", describe(situation)};
  }
  return success;
}

}  // namespace tilewright::reconcile
