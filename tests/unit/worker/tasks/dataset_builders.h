// Small data sets, and their comparison.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/tasks/dataset.h"

namespace tilewright::tasks {

// Two examples of a task with two classes.
inline DatasetLists small_lists() {
  DatasetLists lists;
  lists.append({.ids = {2, 8, 3, 16, 3}, .first_segment = 3});
  lists.append({.ids = {2, 16, 3}, .first_segment = 3});
  lists.labels = {1, 0};
  return lists;
}

inline void expect_equal(const Dataset& found, const Dataset& expected) {
  using ::testing::ElementsAreArray;
  EXPECT_THAT(found.ids, ElementsAreArray(expected.ids));
  EXPECT_THAT(found.offsets, ElementsAreArray(expected.offsets));
  EXPECT_THAT(found.first_segments, ElementsAreArray(expected.first_segments));
  EXPECT_THAT(found.labels, ElementsAreArray(expected.labels));
  EXPECT_THAT(found.last_labels, ElementsAreArray(expected.last_labels));
  EXPECT_THAT(found.values, ElementsAreArray(expected.values));
  EXPECT_EQ(found.warnings, expected.warnings);
  EXPECT_EQ(found.size(), expected.size());
}

}  // namespace tilewright::tasks
