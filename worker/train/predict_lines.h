// Predictions of a trained classifier for sentences that are in no task's files: JSON lines in, JSON
// lines out.
#pragma once

#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/contract/training_flags.h"
#include "worker/train/run.h"

namespace tilewright::train {

// The size of an input, and of one of its lines, at most.
inline constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxInputLineBytes = std::size_t{1} << 20;

// Each line of `input` is {"sentence": ...} or {"sentence1": ..., "sentence2": ...}; other members
// and empty lines are skipped. Returns a line {"label": ..., "score": ...} for each, with the
// probability of the most probable label of config.json, or {"score": ...} from a regression, which
// has one label. `name`: of the input, in messages. Uses the flags model_name_or_path, config_name,
// tokenizer_name, max_seq_length, per_device_eval_batch_size, bf16, threads and gemm_backend. Throws
// Failure (kData with the line; kUsage, kModel, kWeights).
std::string predict_lines(const TrainingArguments& arguments, const RunOptions& options,
                          std::string_view input, const std::string& name, Logger& log);

}  // namespace tilewright::train
