// The evaluations in the log history of a training (log_history in trainer_state.json).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/checkpoint/trainer_state.h"
#include "worker/train/evaluator.h"

namespace tilewright::train {

// An entry of the log history: epoch, step, eval_accuracy, eval_loss, eval_runtime, ...
nlohmann::json evaluation_entry(const EvaluationResult& evaluation,
                                const checkpoint::TrainerState& state);

// The metrics of the last evaluation in the log history, without loss and speed: "eval_accuracy",
// also "eval_accuracy_mm" if it had two sets.
std::map<std::string, double> last_evaluation_metrics(const checkpoint::TrainerState& state);

}  // namespace tilewright::train
