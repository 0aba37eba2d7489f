// Names of the values in a worker's progress report, shared by worker, controller and metrics.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tilewright::training_report {

// Keys of Progress::metrics, which also holds the results of evaluations.
inline constexpr const char* kGflops = "gflops";  // GFLOP/s of all workers, padding excluded
inline constexpr const char* kPeakGflops = "peak_gflops";  // measured peak of their CPUs
inline constexpr const char* kEtaSeconds = "eta_seconds";  // until the last step
inline constexpr const char* kGradNorm = "grad_norm";      // of the last step, before clipping

// Checkpoints that rank 0 could not write since it started.
inline constexpr const char* kFailedCheckpoints = "failed_checkpoints";
// How long the training has waited because a checkpoint was still being written when the next one
// was due.
inline constexpr const char* kCheckpointWaitSeconds = "checkpoint_wait_seconds";

// Losses of workers after which the training continued from memory, and steps that it computed
// again.
inline constexpr const char* kRecoveries = "recoveries";
inline constexpr const char* kStepsLost = "steps_lost";

// Of the reporting process: seconds of its forward and backward passes in the last step, and its
// virtual shards (0 if the training is not exact).
inline constexpr const char* kComputeSeconds = "compute_seconds";
inline constexpr const char* kShards = "shards";
// Of the reporting process, means of the last steps: the exchange of the gradient, and the part of
// it that backward hid.
inline constexpr const char* kExchangeSeconds = "exchange_seconds";
inline constexpr const char* kHiddenExchangeSeconds = "hidden_exchange_seconds";

// Prefix of evaluation results, as in eval_accuracy.
inline constexpr std::string_view kEvaluationPrefix = "eval_";
// "accuracy" for "eval_accuracy"; nullopt for the name of another value.
constexpr std::optional<std::string_view> evaluation_result(std::string_view name) {
  if (!name.starts_with(kEvaluationPrefix)) return std::nullopt;
  return name.substr(kEvaluationPrefix.size());
}
// The file in the output directory that contains the evaluation results.
inline constexpr const char* kEvaluationFile = "eval_results.json";
inline constexpr const char* kAllResultsFile = "all_results.json";

// Slow workers that a report and the status name at most.
inline constexpr std::size_t kMaxSlowWorkers = 16;

// Progress::phase while training; other phases are shown to the user.
inline constexpr const char* kTrainingPhase = "training";
// In every evaluation, also between the steps of a training.
inline constexpr const char* kEvaluatingPhase = "evaluating";

}  // namespace tilewright::training_report
