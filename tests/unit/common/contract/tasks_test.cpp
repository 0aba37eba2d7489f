// Checks the rules that common/contract/tasks.h states for the entries of its lists.
#include "common/contract/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tilewright {
namespace {

TEST(Tasks, AreSortedAndHaveDifferentNames) {
  EXPECT_TRUE(std::ranges::is_sorted(task_descriptions(), {}, &TaskDescription::name));
  EXPECT_TRUE(std::ranges::is_sorted(question_answering_tasks(), {}, &QuestionAnsweringTask::name));
  std::vector<std::string_view> names = task_names();
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(Tasks, EntriesAreComplete) {
  for (const TaskDescription& task : task_descriptions()) {
    SCOPED_TRACE(task.name);
    EXPECT_FALSE(task.summary.empty());
    const std::size_t sentences = task.sentences.size();
    EXPECT_TRUE(sentences == 1 || sentences == 2) << sentences;
    EXPECT_TRUE(task.hub_sentences.empty() || task.hub_sentences.size() == sentences);
    EXPECT_EQ(task.submission_files.size(), task.test_files.size());
    EXPECT_EQ(task.metrics.empty(), task.dev_files.empty());
    if (task.label_names.empty()) {
      EXPECT_FALSE(task.submits_label_names) << "a regression";
    } else {
      EXPECT_GE(task.label_names.size(), 2U);
    }
    if (task.headerless_fields == 0) continue;
    EXPECT_LT(task.label.index, task.headerless_fields);
    for (const TaskColumn& column : task.sentences) {
      EXPECT_LT(column.index, task.headerless_fields) << column.name;
    }
  }
}

TEST(TaskOfDataset, IsItsNameOrItsConfiguration) {
  EXPECT_EQ(task_of_dataset("rajpurkar/squad_v2", "").task, "squad_v2");
  EXPECT_EQ(task_of_dataset("data:glue/", "MRPC").task, "mrpc");
  EXPECT_EQ(task_of_dataset("glue", "squad").problem->flag, "dataset_config_name");
  EXPECT_EQ(task_of_dataset("glue", "squad").problem->message(),
            "found squad, expected the task of the data set glue: one of ax, cola, mnli, mrpc, "
            "qnli, qqp, rte, sst2, stsb, wnli");
  EXPECT_EQ(task_of_dataset("imdb", "").problem->flag, "dataset_name");
}

TEST(TaskOfDataset, IsTheTaskThatIsGivenUnlessItIsKnownToBeAnother) {
  EXPECT_EQ(task_of_dataset("glue", "", "mrpc").task, "mrpc");
  EXPECT_EQ(task_of_dataset("my/mirror", "", "mrpc").task, "mrpc");
  EXPECT_EQ(task_of_dataset("squad", "", "squad").task, "squad");
  const DatasetTask name = task_of_dataset("squad", "", "mrpc");
  EXPECT_EQ(name.task, "");
  ASSERT_TRUE(name.problem);
  EXPECT_EQ(name.problem->flag, "dataset_name");
  EXPECT_EQ(name.problem->message(), "found squad, expected a data set of the task mrpc");
  EXPECT_EQ(task_of_dataset("glue", "sst2", "mrpc").problem->flag, "dataset_config_name");
}

TEST(EvaluationMetrics, AreThoseOfTheTask) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(evaluation_metrics("mrpc", false), (Names{"accuracy", "f1", "combined_score"}));
  EXPECT_EQ(evaluation_metrics("cola", false), (Names{"matthews_correlation"}));
  EXPECT_EQ(evaluation_metrics("", false), (Names{"accuracy", "mse"}));
  EXPECT_EQ(evaluation_metrics("squad", false), (Names{"exact_match", "f1"}));
  EXPECT_EQ(evaluation_metrics("squad", true), evaluation_metrics("squad_v2", false));
}

}  // namespace
}  // namespace tilewright
