#include "worker/train/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

// Examples of these lengths to evaluate.
Job make_job(const std::vector<std::int64_t>& lengths, std::int64_t batch,
             std::int64_t padded_length = 0) {
  Job job;
  job.settings.do_train = false;
  job.settings.do_eval = true;
  job.settings.per_device_eval_batch_size = batch;
  job.padding.length = padded_length;
  tasks::DatasetLists lists;
  for (const std::int64_t length : lengths) {
    const auto tokens = static_cast<std::size_t>(length);
    lists.append({.ids = std::vector<std::int32_t>(tokens), .first_segment = tokens});
  }
  job.evaluation_sets.push_back(
      {.part = {tasks::Split::kDev, 0}, .suffix = "", .data = tasks::Dataset(std::move(lists))});
  return job;
}

std::vector<std::int64_t> varied_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 300; ++i) lengths.push_back(2 + i * i * 7 % 511);
  return lengths;
}

std::int64_t end_of_first(const Job& job) {
  const tasks::Dataset& data = job.evaluation_sets.front().data;
  return evaluation_batch_end(job, data, 0, static_cast<std::int64_t>(data.size()));
}

TEST(EvaluationBatch, HasMoreExamplesThanTheFlagIfTheyAreShort) {
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(500, 8), 8)), kEvaluationTokens / 8);
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(500, 8), 300)), 300);
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(20, 8), 8)), 20);
}

TEST(EvaluationBatch, HasTheExamplesOfTheFlagIfTheyAreLong) {
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(100, 512), 8)), 8);
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(100, 512), 1)),
            kEvaluationTokens / 512);
  EXPECT_EQ(end_of_first(make_job(std::vector<std::int64_t>(100, 8), 1, 512)),
            kEvaluationTokens / 512)
      << "padded positions count";
}

// Each worker begins its batches at another example.
TEST(MemoryPlan, BoundsEveryEvaluationBatch) {
  for (const std::int64_t batch : {1, 8, 64, 1000}) {
    for (const std::int64_t padded_length : {0, 128}) {
      const Job job = make_job(varied_lengths(), batch, padded_length);
      const nn::BatchLimits limits = plan_memory(job).evaluation;
      const tasks::Dataset& data = job.evaluation_sets.front().data;
      const auto examples = static_cast<std::int64_t>(data.size());
      for (std::int64_t begin = 0; begin < examples; ++begin) {
        const std::int64_t end = evaluation_batch_end(job, data, begin, examples);
        ASSERT_GT(end, begin);
        nn::Batch one;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::vector<std::int32_t> ids(data.length(static_cast<std::size_t>(i)));
          one.add(ids, ids.size(), {}, 0, job.padding);
        }
        ASSERT_LE(one.T(), limits.tokens);
        ASSERT_LE(one.B(), limits.examples);
        ASSERT_LE(one.max_seqlen, limits.max_seqlen);
      }
    }
  }
}

// A training on examples of these lengths.
Job make_training(const std::vector<std::int64_t>& lengths, const nn::Padding& padding) {
  Job job = make_job(lengths, 1);
  job.train_data = std::move(job.evaluation_sets.front().data);
  job.evaluation_sets.clear();
  job.settings.do_train = true;
  job.settings.do_eval = false;
  job.settings.max_workers = job.settings.nominal_workers = 1;
  job.settings.per_device_train_batch_size = 3;
  job.settings.virtual_shards = 2;
  job.settings.global_batch = 8;
  job.padding = padding;
  return job;
}

TEST(TrainingRows, AreThoseOfTheLongestExampleOfEachBatchIfTheLossCountsPadding) {
  using ::testing::ElementsAre;
  const std::vector<std::int64_t> lengths = {5, 9, 7, 2, 3, 4, 8, 6, 20};
  const std::vector<std::int32_t> examples = {1, 0, 2, 3, 4, 5, 7, 6};
  const auto rows = [&](const nn::Padding& padding) {
    return training_rows(make_training(lengths, padding), examples);
  };
  EXPECT_THAT(rows({}), ElementsAre(9, 5, 7, 2, 3, 4, 6, 8));
  EXPECT_THAT(rows({.length = 7}), ElementsAre(9, 7, 7, 7, 7, 7, 7, 8));
  EXPECT_THAT(rows({.in_loss = true}), ElementsAre(9, 9, 9, 4, 4, 4, 8, 8));
  EXPECT_THAT(rows({.length = 20, .in_loss = true}), ::testing::Each(20));
}

TEST(TrainingTarget, IsTheLastPaddingTokenWhereRunQaTakesTheLastToken) {
  const auto label = [](std::int32_t of_feature, const nn::Padding& padding) {
    Job job = make_job({6}, 1);
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

TEST(MemoryPlan, BoundsTrainingBatchesWhoseExamplesArePaddedToTheLongest) {
  const Job job = make_training({5, 9, 7, 2, 3, 4, 8, 6, 20}, {.in_loss = true});
  const nn::BatchLimits limits = plan_memory(job).training;
  EXPECT_EQ(limits.max_seqlen, 20);
  // The longest example may be in any batch.
  EXPECT_GE(limits.tokens, 20 * limits.examples);
  EXPECT_GE(limits.examples, 3);
}

// Without a bound the plan of this many workers takes hours.
TEST(MemoryPlan, HasTheGradientsOfAsManyWorkersAsShards) {
  Job job = make_training({5, 9, 7, 2, 3, 4, 8, 6, 20}, {});
  job.settings.virtual_shards = 8;
  job.settings.max_workers = 8;
  const int buffers = plan_memory(job).gradient_buffers;
  EXPECT_GT(buffers, 1);
  job.settings.max_workers = 1'000'000;
  EXPECT_EQ(plan_memory(job).gradient_buffers, buffers);
}

}  // namespace
}  // namespace tilewright::train
