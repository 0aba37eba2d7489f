#include "worker/train/batching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/jobs_of_lengths.h"

namespace tilewright::train {
namespace {

std::int64_t end_of_first(const Job& job) {
  const tasks::Dataset& data = job.evaluation_sets.front().data;
  return evaluation_batch_end(job, data, 0, static_cast<std::int64_t>(data.size()));
}

TEST(EvaluationBatch, HasMoreExamplesThanTheFlagIfTheyAreShort) {
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(500, 8), 8)),
            kEvaluationTokens / 8);
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(500, 8), 300)), 300);
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(20, 8), 8)), 20);
}

TEST(EvaluationBatch, HasTheExamplesOfTheFlagIfTheyAreLong) {
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(100, 512), 8)), 8);
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(100, 512), 1)),
            kEvaluationTokens / 512);
  EXPECT_EQ(end_of_first(evaluation_job(std::vector<std::int64_t>(100, 8), 1, 512)),
            kEvaluationTokens / 512)
      << "padded positions count";
}

TEST(TrainingRows, AreThoseOfTheLongestExampleOfEachBatchIfTheLossCountsPadding) {
  using ::testing::ElementsAre;
  const std::vector<std::int64_t> lengths = {5, 9, 7, 2, 3, 4, 8, 6, 20};
  const std::vector<std::int32_t> examples = {1, 0, 2, 3, 4, 5, 7, 6};
  const auto rows = [&](const nn::Padding& padding) {
    return training_rows(training_job(lengths, padding), examples);
  };
  EXPECT_THAT(rows({}), ElementsAre(9, 5, 7, 2, 3, 4, 6, 8));
  EXPECT_THAT(rows({.length = 7}), ElementsAre(9, 7, 7, 7, 7, 7, 7, 8));
  EXPECT_THAT(rows({.in_loss = true}), ElementsAre(9, 9, 9, 4, 4, 4, 8, 8));
  EXPECT_THAT(rows({.length = 20, .in_loss = true}), ::testing::Each(20));
}

TEST(TrainingTarget, IsTheLastPaddingTokenWhereRunQaTakesTheLastToken) {
  const auto label = [](std::int32_t of_feature, const nn::Padding& padding) {
    Job job = evaluation_job({6}, 1);
    tasks::DatasetLists lists;
    lists.ids = {2, 8, 3, 8, 8, 3};
    lists.offsets = {0, 6};
    lists.first_segments = {3};
    lists.labels = {of_feature};
    lists.last_labels = {4};
    job.train_data = tasks::Dataset(std::move(lists));
    job.padding = padding;
    return training_target(job, 0).label;
  };
  EXPECT_EQ(label(5, {.length = 9, .in_loss = true}), 8);
  EXPECT_EQ(label(4, {.length = 9, .in_loss = true}), 4);
  EXPECT_EQ(label(5, {.in_loss = true}), 5) << "padded after the features were made";
  EXPECT_EQ(label(5, {.length = 9}), 5);
}

}  // namespace
}  // namespace tilewright::train
