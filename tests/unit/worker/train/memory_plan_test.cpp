#include "worker/train/memory_plan.h"

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

}  // namespace
}  // namespace tilewright::train
