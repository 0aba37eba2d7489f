#include "common/contract/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/strings.h"

namespace tilewright {

std::string_view to_string(TaskMetric metric) {
  switch (metric) {
    case TaskMetric::kAccuracy:
      return "accuracy";
    case TaskMetric::kF1:
      return "f1";
    case TaskMetric::kMatthewsCorrelation:
      return "matthews_correlation";
    case TaskMetric::kPearson:
      return "pearson";
    case TaskMetric::kSpearman:
      return "spearmanr";
    case TaskMetric::kMeanSquaredError:
      return "mse";
  }
  TW_CHECK(false, "unknown metric {}", static_cast<int>(metric));
}

// Names, label order and metrics are those of Hugging Face's run_glue and its `glue` data set;
// files and columns are those of the public GLUE download.
std::span<const TaskDescription> task_descriptions() {
  using enum TaskMetric;
  static const std::array kTasks = {
      TaskDescription{.name = "ax",
                      .summary = "GLUE's diagnostic pairs, predicted by a model of mnli",
                      .label_names = {"entailment", "neutral", "contradiction"},
                      .train_files = {},
                      .dev_files = {},
                      .test_files = {{"AX.tsv", "", "diagnostic.tsv"}},
                      .label = {"label"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .hub_sentences = {"premise", "hypothesis"},
                      .submission_files = {"AX.tsv"},
                      .submits_label_names = true},
      TaskDescription{.name = "cola",
                      .summary = "whether a sentence is grammatical",
                      .label_names = {"unacceptable", "acceptable"},
                      .headerless_fields = 4,
                      .label = {"label", 1},
                      .sentences = {{"sentence", 3}},
                      .metrics = {kMatthewsCorrelation},
                      .submission_files = {"CoLA.tsv"}},
      TaskDescription{.name = "mnli",
                      .summary = "whether the first sentence entails or contradicts the second",
                      .label_names = {"entailment", "neutral", "contradiction"},
                      .dev_files = {{"dev_matched.tsv", ""}, {"dev_mismatched.tsv", "mm"}},
                      .test_files = {{"test_matched.tsv", ""}, {"test_mismatched.tsv", "mm"}},
                      .label = {"gold_label"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .hub_sentences = {"premise", "hypothesis"},
                      .skipped_label = "-",  // the annotators did not agree
                      .metrics = {kAccuracy},
                      .submission_files = {"MNLI-m.tsv", "MNLI-mm.tsv"},
                      .submits_label_names = true},
      TaskDescription{.name = "mrpc",
                      .summary = "whether two sentences are paraphrases",
                      .label_names = {"not_equivalent", "equivalent"},
                      .label = {"Quality"},
                      .sentences = {{"#1 String"}, {"#2 String"}},
                      .hub_sentences = {"sentence1", "sentence2"},
                      .metrics = {kAccuracy, kF1},
                      .submission_files = {"MRPC.tsv"}},
      TaskDescription{.name = "qnli",
                      .summary = "whether a sentence answers a question",
                      .label_names = {"entailment", "not_entailment"},
                      .label = {"label"},
                      .sentences = {{"question"}, {"sentence"}},
                      .metrics = {kAccuracy},
                      .submission_files = {"QNLI.tsv"},
                      .submits_label_names = true},
      TaskDescription{.name = "qqp",
                      .summary = "whether two questions have the same meaning",
                      .label_names = {"not_duplicate", "duplicate"},
                      .label = {"is_duplicate"},
                      .sentences = {{"question1"}, {"question2"}},
                      .skips_incomplete_rows = true,  // the public files have some
                      .metrics = {kAccuracy, kF1},
                      .submission_files = {"QQP.tsv"}},
      TaskDescription{.name = "rte",
                      .summary = "whether the first sentence entails the second",
                      .label_names = {"entailment", "not_entailment"},
                      .label = {"label"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .metrics = {kAccuracy},
                      .submission_files = {"RTE.tsv"},
                      .submits_label_names = true},
      TaskDescription{.name = "sst2",
                      .summary = "whether a film review is positive",
                      .label_names = {"negative", "positive"},
                      .label = {"label"},
                      .sentences = {{"sentence"}},
                      .metrics = {kAccuracy},
                      .submission_files = {"SST-2.tsv"}},
      TaskDescription{.name = "stsb",
                      .summary = "how similar two sentences are, a number from 0 to 5",
                      .label = {"score"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .metrics = {kPearson, kSpearman},
                      .submission_files = {"STS-B.tsv"}},
      TaskDescription{.name = "wnli",
                      .summary = "whether a sentence with a pronoun entails one without it",
                      .label_names = {"not_entailment", "entailment"},
                      .label = {"label"},
                      .sentences = {{"sentence1"}, {"sentence2"}},
                      .metrics = {kAccuracy},
                      .submission_files = {"WNLI.tsv"}},
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

std::string_view question_answering_task(bool version_2_with_negative) {
  for (const QuestionAnsweringTask& task : question_answering_tasks()) {
    if (task.version_2_with_negative == version_2_with_negative) return task.name;
  }
  TW_CHECK(false, "no task of question answering");
}

std::vector<std::string_view> glue_task_names() {
  std::vector<std::string_view> names;
  for (const TaskDescription& task : task_descriptions()) names.push_back(task.name);
  return names;
}

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names = glue_task_names();
  for (const QuestionAnsweringTask& task : question_answering_tasks()) names.push_back(task.name);
  return names;
}

namespace {

// A directory of Parquet files has the name of its data set too: "data:glue", "/data/glue/".
std::string_view base_name(std::string_view dataset_name) {
  std::string_view base = dataset_name.substr(0, dataset_name.find_last_not_of('/') + 1);
  base.remove_prefix(std::min(base.find_last_of("/:") + 1, base.size()));
  return base;
}

}  // namespace

bool is_glue_dataset(std::string_view dataset_name) { return base_name(dataset_name) == "glue"; }

DatasetTask task_of_dataset(std::string_view dataset_name, std::string_view config_name,
                            std::string_view task_name) {
  const std::string_view base = base_name(dataset_name);
  const bool is_glue = is_glue_dataset(dataset_name);
  const std::vector<std::string_view> known = is_glue ? glue_task_names() : task_names();
  // Capitals count as small letters, as in --task_name.
  std::string found = lower_case(is_glue ? config_name : base);
  const bool is_known = std::ranges::find(known, found) != known.end();
  const std::string_view flag = is_glue ? "dataset_config_name" : "dataset_name";
  const std::string given =
      config_name.empty() && is_glue ? "nothing" : excerpt(is_glue ? config_name : dataset_name);
  if (!task_name.empty()) {
    if (!is_known || found == task_name) return {std::string(task_name)};
    return {.problem = {{flag, given, fmt::format("a data set of the task {}", task_name)}}};
  }
  if (is_known) return {std::move(found)};
  const char* expected = is_glue ? "the task of the data set glue: one of" : "glue, or one of";
  return {.problem = {{flag, given,
                       fmt::format("{} {}{}", expected, fmt::join(known, ", "),
                                   is_glue ? "" : "; for other data use train_file")}}};
}

std::vector<std::string_view> evaluation_metrics(std::string_view task_name,
                                                 bool version_2_with_negative) {
  using enum TaskMetric;
  // As in Hugging Face's `evaluate`.
  static const std::vector<std::string_view> kSquad = {"exact_match", "f1"};
  static const std::vector<std::string_view> kSquadV2 = {"exact",
                                                         "f1",
                                                         "total",
                                                         "HasAns_exact",
                                                         "HasAns_f1",
                                                         "HasAns_total",
                                                         "NoAns_exact",
                                                         "NoAns_f1",
                                                         "NoAns_total",
                                                         "best_exact",
                                                         "best_exact_thresh",
                                                         "best_f1",
                                                         "best_f1_thresh"};
  if (task_name.empty()) return {to_string(kAccuracy), to_string(kMeanSquaredError)};
  for (const QuestionAnsweringTask& task : question_answering_tasks()) {
    if (task.name != task_name) continue;
    return task.version_2_with_negative || version_2_with_negative ? kSquadV2 : kSquad;
  }
  std::vector<std::string_view> names;
  for (const TaskDescription& task : task_descriptions()) {
    if (task.name != task_name) continue;
    for (const TaskMetric metric : task.metrics) names.push_back(to_string(metric));
    if (names.size() > 1) names.push_back(kCombinedScore);
  }
  return names;
}

}  // namespace tilewright
