// Metrics under the names of Hugging Face's Trainer: "eval_accuracy", "train_runtime", ...
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "worker/train/evaluator.h"

namespace tilewright::train {

using MetricsJson = nlohmann::ordered_json;

// The prefix of the metrics when run_qa.py predicts: it calls predict() without one. It has no
// loss.
inline constexpr const char* kQuestionAnsweringPrediction = "test";

// As transformers' speed_metrics(). `seconds` not positive: only the runtime.
void add_speed(MetricsJson& metrics, const std::string& prefix, double seconds, double samples,
               double steps);

// Adds the metrics of one evaluation. `prefix`: "eval", "predict" or kQuestionAnsweringPrediction.
// Without labels there is only the speed.
void add_evaluation_metrics(MetricsJson& metrics, const std::string& prefix,
                            const EvaluationResult& evaluation);

}  // namespace tilewright::train
