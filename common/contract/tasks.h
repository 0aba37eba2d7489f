// The tasks that a job can train. The flag --task_name, the CRD, --help, the documentation and
// worker/tasks read this list.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/flag_problem.h"

namespace tilewright {

enum class TaskMetric {
  kAccuracy,
  kF1,
  kMatthewsCorrelation,
  kPearson,
  kSpearman,
  kMeanSquaredError
};

// The name under which results and metrics report it: "accuracy", "f1", "matthews_correlation",
// "pearson", "spearmanr", "mse".
std::string_view to_string(TaskMetric metric);

// A column of a tab-separated file: identified by its name in the header, or by its index if the
// file has no header.
struct TaskColumn {
  std::string_view name;
  std::size_t index = 0;
};

// A file of a split.
struct TaskFile {
  std::string_view name;             // relative to --data_dir
  std::string_view part;             // distinguishes the files of a split: "" or "mm"
  std::string_view other_name = {};  // read if there is no file `name`
};

// A GLUE task: one sentence or a pair of sentences, and a class or, for a regression, a number.
struct TaskDescription {
  std::string_view name;     // the value of --task_name
  std::string_view summary;  // what the model learns to predict
  // In the order of the label ids. A row's label is the id or the name. Empty: a regression.
  std::vector<std::string_view> label_names = {};
  std::vector<TaskFile> train_files = {{"train.tsv", ""}};  // empty: the split does not exist
  std::vector<TaskFile> dev_files = {{"dev.tsv", ""}};
  std::vector<TaskFile> test_files = {{"test.tsv", ""}};
  // Fields per line of the training and dev files; 0: they have a header, as all test files do.
  std::size_t headerless_fields = 0;
  TaskColumn label = {};
  std::vector<TaskColumn> sentences = {};  // one, or two for a sentence pair
  // Names of the sentences in the hub's data set, if they are not those of the files.
  std::vector<std::string_view> hub_sentences = {};
  std::string_view skipped_label = {};  // rows with this label are skipped; empty: none
  bool skips_incomplete_rows = false;
  std::vector<TaskMetric> metrics = {};  // on the dev split
  // Of GLUE's submission, one for each test file: "MNLI-m.tsv".
  std::vector<std::string_view> submission_files = {};
  bool submits_label_names = false;  // false: label ids
};

// In alphabetical order.
std::span<const TaskDescription> task_descriptions();

// A task of extractive question answering: the part of a context that answers a question.
struct QuestionAnsweringTask {
  std::string_view name;
  std::string_view summary;
  std::string_view train_file;  // relative to --data_dir
  std::string_view eval_file;
  std::string_view test_file;
  bool version_2_with_negative = false;  // as if the flag was given: the data have such questions
};

// In alphabetical order.
std::span<const QuestionAnsweringTask> question_answering_tasks();

// The task of run_qa.py with or without --version_2_with_negative: "squad_v2" or "squad".
std::string_view question_answering_task(bool version_2_with_negative);

// The names of task_descriptions(), and of both lists, in their order.
std::vector<std::string_view> glue_task_names();
std::vector<std::string_view> task_names();

// The task of a data set on the hub.
struct DatasetTask {
  std::string task = {};  // empty: the data set has no known task
  // Then, of dataset_name or dataset_config_name.
  std::optional<FlagProblem> problem = {};
};
// Whether this is GLUE, of which each task is a configuration: "nyu-mll/glue", "/data/glue".
bool is_glue_dataset(std::string_view dataset_name);

// "squad" for "rajpurkar/squad", and `config_name` for "glue". `task_name`: of --task_name, in
// lower case; if it is not empty, it is the task, and only a data set of another task is an error.
DatasetTask task_of_dataset(std::string_view dataset_name, std::string_view config_name,
                            std::string_view task_name = {});

inline constexpr std::string_view kCombinedScore = "combined_score";

// The metrics of an evaluation, besides the loss, by the names that --metric_for_best_model takes.
// `task_name`: empty for files of the user's own, whose labels determine which of the names it is.
// Some of SQuAD 2.0 are missing if all questions, or none, have answers.
std::vector<std::string_view> evaluation_metrics(std::string_view task_name,
                                                 bool version_2_with_negative);

}  // namespace tilewright
