// What the flags of a training mean together, as far as it does not depend on the model, the data
// and the machine. The worker and `tilewright validate` share these checks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/flag_problem.h"
#include "common/contract/training_flags.h"

namespace tilewright {

// If one of do_train, do_eval and do_predict is set to true, the others are false unless they are
// set too. A training with an eval_strategy evaluates.
void resolve_actions(const TrainingArguments& arguments, TrainingSettings& settings);

// Gives flags with the same effect the same values: sets group_by_length for a
// train_sampling_strategy of that name, seeds of -1 to `seed`, and a max_grad_norm below 0 to 0.
void resolve_equivalent_values(TrainingSettings& settings);

// Whether the weights do not depend on the number of processes: oneDNN does not guarantee that.
bool is_exact(const TrainingSettings& settings);

// Whether a task in lower case is one of run_qa.py; false for an empty name.
bool answers_questions(std::string_view task_name);

// The first flag that is set and that only run_qa.py has: files of the user's own then hold
// question answering. Empty: there is none.
std::string_view run_qa_flag(const TrainingArguments& arguments);

// Sets the task of files of the user's own if run_qa_flag() tells it.
void infer_question_answering(const TrainingArguments& arguments, TrainingSettings& settings);

// The flags with files of the user's own, in the order in which they are looked for.
inline constexpr std::array<std::string_view, 3> kOwnFileFlags = {"train_file", "validation_file",
                                                                  "test_file"};
struct OwnFile {
  std::string_view flag;
  std::string_view path;  // empty: not given. Of the settings.
};
std::array<OwnFile, 3> own_files(const TrainingSettings& settings);
// The same without the files that the worker does not read. The actions must be resolved, and
// task_name be set if it is known.
std::array<OwnFile, 3> files_to_read(const TrainingSettings& settings);
// The first flag with a file of the user's own; empty: there is none.
std::string_view own_file_flag(const TrainingSettings& settings);

// The task, model, output and files of the user's own that the actions need and that are not given.
// The actions must be resolved, and task_name be set if it is known.
std::vector<FlagProblem> missing_flags(const TrainingSettings& settings);
// Of them, the files of the user's own.
std::vector<FlagProblem> missing_files(const TrainingSettings& settings);

// The last learning rate of --lr_scheduler_type polynomial: lr_end of transformers'
// get_polynomial_decay_schedule_with_warmup(), which refuses a smaller first one.
inline constexpr double kPolynomialEnd = 1e-7;

// Flags that exclude each other. `settings` as for missing_flags().
std::vector<FlagProblem> conflicting_flags(const TrainingArguments& arguments,
                                           const TrainingSettings& settings);

// Whether a file has the name of one that a classification or regression reads.
bool has_row_suffix(std::string_view path);
inline constexpr std::string_view kExpectedRowSuffix =
    "a file that ends in .csv, .tsv, .json or .jsonl";

// Files of the user's own with other names, unless they hold question answering. `settings` as for
// missing_flags().
std::vector<FlagProblem> unknown_suffixes(const TrainingSettings& settings);

// nullopt unless the training selects its best model by a metric that is neither the loss nor one
// of `names`. `written`: the metric as the user wrote it, with or without "eval_".
std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written,
                                          std::vector<std::string_view> names);
// The same with the metrics of the task.
std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written);

// All that the worker finds before it reads the model and the data.
std::vector<FlagProblem> check_flags(const TrainingArguments& arguments);

}  // namespace tilewright
