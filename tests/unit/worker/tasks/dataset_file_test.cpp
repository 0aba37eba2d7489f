#include "worker/tasks/dataset_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/result.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/tasks/dataset_builders.h"

namespace tilewright::tasks {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST(DatasetFile, HasTheListsOfEachHead) {
  const testing::TemporaryDirectory folder;
  for (const nn::Head head :
       {nn::Head::kClassification, nn::Head::kRegression, nn::Head::kQuestionAnswering}) {
    DatasetLists lists = small_lists();
    if (head == nn::Head::kQuestionAnswering) lists.last_labels = {4, 2};
    if (head == nn::Head::kRegression) {
      lists.labels = {};
      lists.values = {-0.5F, 3};
    }
    Dataset expected(std::move(lists));
    expected.warnings = {"one", "two"};
    const fs::path path = folder.path() / fmt::format("{}.safetensors", static_cast<int>(head));
    write_dataset(path, expected);
    const Dataset found = open_dataset(path, {.head = head, .num_labels = 2, .max_seq_length = 5});
    EXPECT_EQ(found.size(), 2U);
    expect_equal(found, expected);
    EXPECT_EQ(found.digest(), expected.digest());
    EXPECT_EQ(found.source, nullptr);
  }
}

// The seeds of the fuzzer, which were written in Python.
TEST(DatasetFile, MayComeFromAnotherProgram) {
  const fs::path seeds = testing::source_dir() / "tests/fuzz/corpus/dataset_file";
  const Dataset classes = open_dataset(seeds / "classification", {});
  EXPECT_THAT(classes.ids_of(1), ElementsAreArray({2, 16, 3}));
  EXPECT_EQ(classes.first_segment_of(0), 3U);
  EXPECT_THAT(classes.labels, ElementsAreArray({1, 0}));
  EXPECT_THAT(classes.warnings, ElementsAreArray({"row 1"}));
  EXPECT_THAT(open_dataset(seeds / "regression", {.head = nn::Head::kRegression}).values,
              ElementsAreArray({0.5F, -3.0F}));
  EXPECT_THAT(open_dataset(seeds / "question_answering", {.head = nn::Head::kQuestionAnswering})
                  .last_labels,
              ElementsAreArray({4, 2}));
}

TEST(DatasetFile, ListsThatTheModelCannotBeTrainedWithAreRefused) {
  const testing::TemporaryDirectory folder;
  struct Case {
    const char* message;
    void (*change)(DatasetLists&);
    nn::Head head = nn::Head::kClassification;
  };
  constexpr const char* kOther = "has lists that do not belong together";
  const std::vector<Case> cases = {
      {kOther, [](auto& lists) { lists.labels.pop_back(); }},
      {kOther,
       [](auto& lists) {
         lists.last_labels = {1, 1};
       }},
      {kOther,
       [](auto& lists) {
         lists.values = {1, 1};
       }},
      {kOther, [](auto& lists) { lists.ids.push_back(3); }},
      {kOther, [](auto& lists) { lists.offsets.front() = 1; }},
      {kOther, [](auto& lists) { lists = {}; }},
      {kOther, [](auto&) {}, nn::Head::kRegression},
      {kOther, [](auto&) {}, nn::Head::kQuestionAnswering},
      {"has an invalid example 0", [](auto& lists) { lists.labels[0] = 2; }},
      {"has an invalid example 1", [](auto& lists) { lists.labels[1] = -1; }},
      {"has an invalid example 0", [](auto& lists) { lists.first_segments[0] = 6; }},
      {"has an invalid example 1", [](auto& lists) { lists.first_segments[1] = -1; }},
      {"has an invalid example 0",
       [](auto& lists) {
         lists.offsets = {0, 0, 8};
       }},
      {"has an invalid example 1",
       [](auto& lists) {
         lists.offsets = {0, 1, 8};
         lists.first_segments = {1, 3};
       }},
      {"has an invalid example 0",
       [](auto& lists) {
         lists.offsets = {0, -5, 8};
       }},
      {"has an invalid example 1",
       [](auto& lists) {
         lists.last_labels = {4, 3};
       },
       nn::Head::kQuestionAnswering},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    DatasetLists lists = small_lists();
    cases[i].change(lists);
    const fs::path path = folder.path() / fmt::format("{}.safetensors", i);
    write_dataset(path, Dataset(std::move(lists)));
    try {
      open_dataset(path, {.head = cases[i].head, .num_labels = 2, .max_seq_length = 6});
      ADD_FAILURE() << "accepted";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kData);
      EXPECT_THAT(failure.what(), HasSubstr(cases[i].message));
    }
  }
}

}  // namespace
}  // namespace tilewright::tasks
