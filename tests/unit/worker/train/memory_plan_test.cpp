#include "worker/train/memory_plan.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/train/jobs_of_lengths.h"
#include "worker/train/batching.h"

namespace tilewright::train {
namespace {

std::vector<std::int64_t> varied_lengths() {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 300; ++i) lengths.push_back(2 + i * i * 7 % 511);
  return lengths;
}

// Each worker begins its batches at another example.
TEST(MemoryPlan, BoundsEveryEvaluationBatch) {
  for (const std::int64_t batch : {1, 8, 64, 1000}) {
    for (const std::int64_t padded_length : {0, 128}) {
      const Job job = evaluation_job(varied_lengths(), batch, padded_length);
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

TEST(MemoryPlan, BoundsTrainingBatchesWhoseExamplesArePaddedToTheLongest) {
  const Job job = training_job({5, 9, 7, 2, 3, 4, 8, 6, 20}, {.in_loss = true});
  const nn::BatchLimits limits = plan_memory(job).training;
  EXPECT_EQ(limits.max_seqlen, 20);
  // The longest example may be in any batch.
  EXPECT_GE(limits.tokens, 20 * limits.examples);
  EXPECT_GE(limits.examples, 3);
}

// Without a bound the plan of this many workers takes hours.
TEST(MemoryPlan, HasTheGradientsOfAsManyWorkersAsShards) {
  Job job = training_job({5, 9, 7, 2, 3, 4, 8, 6, 20}, {});
  job.settings.virtual_shards = 8;
  job.settings.max_workers = 8;
  const int buffers = plan_memory(job).gradient_buffers;
  EXPECT_GT(buffers, 1);
  job.settings.max_workers = 1'000'000;
  EXPECT_EQ(plan_memory(job).gradient_buffers, buffers);
}

}  // namespace
}  // namespace tilewright::train
