// The results of a training in Hugging Face's form: train_results.json, eval_results.json,
// predict_results.json, all_results.json and trainer_state.json in the output directory, and the
// blocks of metrics on standard output.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/train/trainer.h"
#include "worker/train/trainer_metrics.h"

namespace tilewright::train {

struct Results {
  // Empty: not done. Numbers, and strings that Hugging Face's Trainer does not have.
  MetricsJson train, eval, predict;
  std::map<std::string, std::string> files;  // name -> content
};

// `weights_step`: the step after which the trainer's weights were those that it has now, an earlier
// one than its own if it has loaded the best model. `isa`: of the trainer. `evaluations` and
// `predictions`: empty without do_eval and do_predict.
Results make_results(const Job& job, const Trainer& trainer, std::int64_t weights_step,
                     runtime::Isa isa, std::span<const EvaluationResult> evaluations,
                     std::span<const EvaluationResult> predictions);

// Adds the files (name -> content) of a run without a training to a directory, which may be that of
// a training: its model and checkpoints stay. all_results.json keeps the metrics of earlier runs,
// as with Trainer.save_metrics, and is written last. Failures have output_error_code().
void write_result_files(const std::filesystem::path& directory,
                        std::map<std::string, std::string> files);

// The blocks that Trainer.log_metrics prints, in the order train, eval, predict.
std::string metrics_blocks(const Results& results);

// The lines that Trainer.log_metrics prints for `split` ("train"), with the numbers of `metrics`
// sorted by name; empty if there are none.
std::vector<std::string> metrics_block(std::string_view split, const MetricsJson& metrics);

}  // namespace tilewright::train
