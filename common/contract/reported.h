// Names of what a worker reports of its training, for the controller and Prometheus to find.
#pragma once

#include <string_view>

namespace tilewright::reported {

// Figures among a progress report's metrics, which beside these holds an evaluation's results.
inline constexpr const char* kGflops = "gflops";  // GFLOP/s on real tokens, of all workers together
inline constexpr const char* kPeakGflops = "peak_gflops";  // what their CPUs could do
inline constexpr const char* kEtaSeconds = "eta_seconds";  // until the last step
inline constexpr const char* kGradNorm = "grad_norm";      // of the last step, before clipping

// What the names of an evaluation's results begin with, as in eval_accuracy.
inline constexpr std::string_view kEvaluationPrefix = "eval_";
// The file of the output folder that holds them.
inline constexpr const char* kEvaluationFile = "eval_results.json";

// The phase of which step and loss already tell.
inline constexpr const char* kTrainingPhase = "training";

}  // namespace tilewright::reported
