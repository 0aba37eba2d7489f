// Predictions of a trained model for sentences or questions that are in no task's files: JSON lines
// in, JSON lines out.
#pragma once

#include <string>
#include <string_view>

#include "common/base/log.h"
#include "common/contract/training_flags.h"
#include "worker/train/run.h"

namespace tilewright::train {

// The largest input, and the longest line of it.
inline constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxInputLineBytes = std::size_t{1} << 20;

// Returns a line for each line of `input`; empty lines and other members are skipped.
//
// A classifier takes {"sentence": ...} or {"sentence1": ..., "sentence2": ...}, or one member of
// another name beside "label", and gives
// {"label": ..., "score": ...}, with the probability of the most probable label of config.json; a
// regression, which has one label, gives {"score": ...}. If --task_name or finetuning_task in
// config.json is a GLUE task, a line must have as many sentences as that task.
//
// A model whose architecture in config.json is one for question answering takes {"question": ...,
// "context": ...} and gives {"answer": ..., "score": ..., "start": ..., "end": ...}: the answer
// that run_qa would choose, its probability in the n-best list, and its start and end in the
// context in code points. If there is no answer, which is predicted with version_2_with_negative
// only or if no pair of the n_best_size best tokens is an answer, it is empty and start and end are
// 0. An "id", a string or a number, is repeated.
//
// `name`: of the input, in messages. Uses the flags model_name_or_path, config_name,
// tokenizer_name, task_name, max_seq_length, per_device_eval_batch_size, bf16, threads,
// gemm_backend and, for questions, doc_stride, n_best_size, max_answer_length,
// version_2_with_negative and null_score_diff_threshold.
// Throws Failure (kData with the line; kUsage, kModel, kWeights).
std::string predict_lines(const TrainingArguments& arguments, const RunOptions& options,
                          std::string_view input, const std::string& name, Logger& log);

}  // namespace tilewright::train
