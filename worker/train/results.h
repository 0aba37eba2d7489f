// The result files beside the model: train_results.json, eval_results.json, all_results.json, in
// Hugging Face's names.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/train/trainer.h"

namespace tilewright::train {

// File name -> content. `evaluation`: none where there was no evaluation.
std::map<std::string, std::string> result_files(const Job& job, const Trainer& trainer,
                                                const std::optional<EvaluationResult>& evaluation);

}  // namespace tilewright::train
