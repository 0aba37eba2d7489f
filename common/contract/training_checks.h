// What the flags of a training mean together, as far as it does not depend on the model, the data
// and the machine. The worker and `tilewright validate` share these checks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/training_flags.h"

namespace tilewright {

struct FlagProblem {
  std::string_view flag;  // the flag to change
  std::string found;      // empty: the flag is missing
  std::string expected;

  // "--train_file is missing, expected ...", "--seed: found x, expected ..." or, if `found` begins
  // with a flag, "found --a with --b, expected ...".
  std::string sentence() const;
  // Of a message "found ..., expected ...".
  static FlagProblem from_message(std::string_view flag, std::string_view message);
};

// If one of do_train, do_eval and do_predict is set to true, the others are false unless they are
// set too. A training with an eval_strategy evaluates.
void resolve_actions(const TrainingArguments& arguments, TrainingSettings& settings);

// Whether a task in lower case is one of run_qa.py; false for an empty name.
bool answers_questions(std::string_view task_name);

// The first flag that is set and that only run_qa.py has: files of the user's own then hold question
// answering. Empty: there is none.
std::string_view run_qa_flag(const TrainingArguments& arguments);

// The first flag with a file of the user's own; empty: there is none.
std::string_view own_file_flag(const TrainingSettings& settings);

// The task, model, output and files of the user's own that the actions need and that are not given.
// The actions must be resolved, and task_name be set if it is known.
std::vector<FlagProblem> missing_flags(const TrainingSettings& settings);
// Of them, the files of the user's own.
std::vector<FlagProblem> missing_files(const TrainingSettings& settings);

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

// nullopt unless the training selects its best model by a metric that is neither the loss nor one of
// `names`. `written`: the metric as the user wrote it, with or without "eval_".
std::optional<FlagProblem> unknown_metric(const TrainingSettings& settings,
                                          std::string_view written,
                                          std::vector<std::string_view> names);

// All that the worker finds before it reads the model and the data.
std::vector<FlagProblem> check_flags(const TrainingArguments& arguments);

}  // namespace tilewright
