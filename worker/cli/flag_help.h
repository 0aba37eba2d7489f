// The part of --help of `train`, `eval`, `predict` and `bench start` that comes from the table of
// training flags.
#pragma once

#include <string>

namespace tilewright::cli {

// All flags that work, and the tasks.
std::string train_help();
// Without the flags that only a training uses.
std::string eval_help();
std::string predict_help();
std::string bench_start_help();

}  // namespace tilewright::cli
