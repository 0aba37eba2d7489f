#include "common/contract/tasks.h"

#include <array>

#include "common/base/check.h"

namespace tilewright {

std::string_view to_string(TaskMetric metric) {
  switch (metric) {
    case TaskMetric::kAccuracy:
      return "accuracy";
    case TaskMetric::kF1:
      return "f1";
    case TaskMetric::kMatthewsCorrelation:
      return "matthews_correlation";
  }
  TW_CHECK(false, "unknown metric {}", static_cast<int>(metric));
}

// Names, label order and metrics are those of Hugging Face's run_glue and its `glue` data set;
// files and columns are those of the public GLUE download.
std::span<const TaskDescription> task_descriptions() {
  using enum TaskMetric;
  static const std::array kTasks = {
      TaskDescription{.name = "cola",
                      .summary = "whether a sentence is grammatical",
                      .label_names = {"unacceptable", "acceptable"},
                      .headerless_fields = 4,
                      .label = {"", 1},
                      .sentences = {{"", 3}},
                      .metrics = {kMatthewsCorrelation}},
      TaskDescription{.name = "mrpc",
                      .summary = "whether two sentences are paraphrases",
                      .label_names = {"not_equivalent", "equivalent"},
                      .label = {"Quality"},
                      .sentences = {{"#1 String"}, {"#2 String"}},
                      .metrics = {kAccuracy, kF1}},
      TaskDescription{.name = "rte",
                      .summary = "whether the first sentence entails the second",
                      .label_names = {"entailment", "not_entailment"},
                      .label = {"label"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .metrics = {kAccuracy}},
      TaskDescription{.name = "sst2",
                      .summary = "whether a film review is positive",
                      .label_names = {"negative", "positive"},
                      .label = {"label"},
                      .sentences = {{"sentence"}},
                      .metrics = {kAccuracy}},
  };
  return kTasks;
}

// Names of the hub's data sets, and files of the published ones; the test sets are not published.
std::span<const QuestionAnsweringTask> question_answering_tasks() {
  static const std::array kTasks = {
      QuestionAnsweringTask{.name = "squad",
                            .summary = "which words of a context answer a question",
                            .train_file = "train-v1.1.json",
                            .eval_file = "dev-v1.1.json",
                            .test_file = "test-v1.1.json"},
      QuestionAnsweringTask{.name = "squad_v2",
                            .summary = "whether and where a context answers a question",
                            .train_file = "train-v2.0.json",
                            .eval_file = "dev-v2.0.json",
                            .test_file = "test-v2.0.json",
                            .version_2_with_negative = true},
  };
  return kTasks;
}

}  // namespace tilewright
