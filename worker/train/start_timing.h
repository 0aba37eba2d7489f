// Measures the parts of the start of a training, up to the end of its first step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/contract/training_flags.h"
#include "worker/train/run.h"

namespace tilewright::train {

// Name -> seconds, in the order of their execution.
using StartParts = std::vector<std::pair<std::string, double>>;

// Does what run_training() does in a process of its own until the first step has ended, without an
// output directory. `arguments` train at least two steps. Throws Failure as run_training().
StartParts measure_start(const TrainingArguments& arguments, const RunOptions& options,
                         Logger& log);

}  // namespace tilewright::train
