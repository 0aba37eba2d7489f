#include "worker/train/micro_batches.h"

#include <gtest/gtest.h>

#include <bit>

namespace tilewright::train {
namespace {

using MicroBatches = std::vector<std::vector<Subtree>>;

MicroBatches subtrees(const MicroBatchPlan& plan) {
  MicroBatches micro_batches;
  for (const auto& micro_batch : plan.micro_batches) {
    micro_batches.emplace_back();
    for (const Group& group : micro_batch) micro_batches.back().push_back(group.subtree);
  }
  return micro_batches;
}

TEST(PlanMicroBatches, UsesOneMicroBatchIfAllExamplesFit) {
  EXPECT_EQ(subtrees(plan_micro_batches({0, 8}, 8, 32, 32)), (MicroBatches{{{0, 8}}}));
  EXPECT_EQ(subtrees(plan_micro_batches({0, 3}, 8, 32, 16)), (MicroBatches{{{0, 2}, {2, 1}}}));
}

TEST(PlanMicroBatches, HalvesSubtreesUntilTheyFit) {
  EXPECT_EQ(subtrees(plan_micro_batches({0, 8}, 8, 32, 16)), (MicroBatches{{{0, 4}}, {{4, 4}}}));
  EXPECT_EQ(subtrees(plan_micro_batches({3, 6}, 8, 32, 8)), (MicroBatches{{{3, 1}}, {{4, 2}}}));
}

TEST(PlanMicroBatches, NeverSplitsASingleShard) {
  EXPECT_EQ(subtrees(plan_micro_batches({0, 2}, 2, 100, 8)), (MicroBatches{{{0, 1}}, {{1, 1}}}));
  EXPECT_EQ(max_micro_batch_examples(2, 100, 8), 50);
}

TEST(PlanMicroBatches, KeepsShardsSeparateIfTheirGradientsAreRounded) {
  constexpr auto kSeparate = ShardGradients::kSeparate;
  EXPECT_EQ(subtrees(plan_micro_batches({1, 4}, 4, 32, 32, kSeparate)),
            (MicroBatches{{{1, 1}}, {{2, 1}}, {{3, 1}}}));
  EXPECT_EQ(subtrees(plan_micro_batches({2, 3}, 4, 3, 32, kSeparate)), (MicroBatches{{{2, 1}}}));
}

// Expects that the shards of a rank's plan begin at example `next` and have no gaps, and that no
// micro-batch has more than `max_examples`. Returns the end of the last shard.
std::int64_t check_plan(const MicroBatchPlan& plan, std::int64_t next, std::int64_t max_examples) {
  for (const auto& micro_batch : plan.micro_batches) {
    const std::int64_t begin = next;
    for (const Group& group : micro_batch) {
      EXPECT_EQ(group.shards.size(), static_cast<std::size_t>(group.subtree.size));
      for (const Range& shard : group.shards) {
        EXPECT_EQ(shard.begin, next);
        next = shard.end;
      }
    }
    EXPECT_LE(next - begin, max_examples);
  }
  return next;
}

TEST(PlanMicroBatches, RespectsTheLimitAndCoversEveryExampleOnce) {
  for (const int shards : {1, 2, 8, 16}) {
    for (const std::int64_t examples : {1, 5, 16, 33, 64}) {
      for (const std::int64_t limit : {1, 4, 16, 64}) {
        std::int64_t next = 0;
        for (const Range& own : collectives::even_split(std::min(3, shards), shards)) {
          next = check_plan(plan_micro_batches(own, shards, examples, limit), next,
                            max_micro_batch_examples(shards, examples, limit));
        }
        EXPECT_EQ(next, examples);
      }
    }
  }
}

TEST(PlanMicroBatches, CountsTheGradientsThatAStepHoldsAtOnce) {
  EXPECT_EQ(plan_micro_batches({0, 8}, 8, 32, 32).gradients(), 1) << "one rank, one micro-batch";
  EXPECT_EQ(plan_micro_batches({0, 3}, 8, 32, 32).gradients(), 2)
      << "one of three ranks: one micro-batch, two parts";
  EXPECT_EQ(plan_micro_batches({0, 8}, 8, 32, 8).gradients(), 3)
      << "four micro-batches, each added to its sibling";
}

// begin_epoch() relies on this: the buffers for a full batch are enough for the last, shorter one.
TEST(PlanMicroBatches, NeedsNoMoreGradientsForAShorterBatch) {
  for (const int shards : {1, 2, 8, 16}) {
    for (int world = 1; world <= shards; ++world) {
      for (const std::int64_t limit : {1, 3, 4, 16, 64}) {
        for (int rank = 0; rank < world; ++rank) {
          const Range own = collectives::shards_of(rank, world, shards);
          const int full_batch = plan_micro_batches(own, shards, 64, limit).gradients();
          for (std::int64_t examples = 1; examples < 64; ++examples) {
            ASSERT_LE(plan_micro_batches(own, shards, examples, limit).gradients(), full_batch)
                << examples << " examples, rank " << rank << " of " << world << ", " << shards
                << " shards, micro-batches of " << limit;
          }
        }
      }
    }
  }
}

TEST(PlanPlainMicroBatches, SplitsTheExamplesEvenlyIntoAPowerOfTwoOfMicroBatches) {
  for (const std::int64_t examples : {1, 7, 32, 100}) {
    for (const int world : {1, 2, 3}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const MicroBatchPlan plan = plan_plain_micro_batches(rank, world, examples, 8);
        EXPECT_TRUE(std::has_single_bit(plan.micro_batches.size()));
        next = check_plan(plan, next, 8);
      }
      EXPECT_EQ(next, examples);
    }
  }
}

}  // namespace
}  // namespace tilewright::train
