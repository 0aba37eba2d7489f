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

}  // namespace
}  // namespace tilewright
