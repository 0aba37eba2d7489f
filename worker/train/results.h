// The result files in the output directory: train_results.json, eval_results.json, all_results.json
// and trainer_state.json, with Hugging Face's names and fields.
#pragma once

#include <map>
#include <span>
#include <string>

#include "worker/train/trainer.h"

namespace tilewright::train {

// File name -> content. `isa`: of the trainer. `evaluations`: empty without do_eval.
std::map<std::string, std::string> result_files(const Job& job, const Trainer& trainer,
                                                runtime::Isa isa,
                                                std::span<const EvaluationResult> evaluations);

}  // namespace tilewright::train
