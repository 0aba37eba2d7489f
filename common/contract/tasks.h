// The tasks that a job can train. The flag --task_name, the CRD, --help, the documentation and
// worker/tasks read this list.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tilewright {

enum class TaskMetric { kAccuracy, kF1, kMatthewsCorrelation };

// The name under which results and metrics report it: "accuracy", "f1", "matthews_correlation".
std::string_view to_string(TaskMetric metric);

// A column of a tab-separated file: identified by its name in the header, or by its index if the
// file has no header.
struct TaskColumn {
  std::string_view name;
  std::size_t index = 0;
};

// A GLUE classification task: one sentence or a pair of sentences, and a class.
struct TaskDescription {
  std::string_view name;     // the value of --task_name
  std::string_view summary;  // what the model learns to predict
  // In the order of the label ids. A row's label is the id or the name.
  std::vector<std::string_view> label_names;
  std::string_view train_file = "train.tsv";  // relative to --data_dir
  std::string_view eval_file = "dev.tsv";
  std::size_t headerless_fields = 0;  // fields per line; 0: the files have a header
  TaskColumn label;
  std::vector<TaskColumn> sentences;  // one, or two for a sentence pair
  std::vector<TaskMetric> metrics;
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

}  // namespace tilewright
