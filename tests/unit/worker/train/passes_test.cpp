#include "worker/train/passes.h"

#include <gtest/gtest.h>

#include <bit>

namespace tilewright::train {
namespace {

using Passes = std::vector<std::vector<Subtree>>;

Passes subtrees(const PassPlan& plan) {
  Passes passes;
  for (const auto& pass : plan.passes) {
    passes.emplace_back();
    for (const Group& group : pass) passes.back().push_back(group.subtree);
  }
  return passes;
}

TEST(PlanPasses, RunsAllTokensAtOnceWhereTheyFit) {
  EXPECT_EQ(subtrees(plan_passes({0, 8}, 8, 32, 32)), (Passes{{{0, 8}}}));
  EXPECT_EQ(subtrees(plan_passes({0, 3}, 8, 32, 16)), (Passes{{{0, 2}, {2, 1}}}));
}

TEST(PlanPasses, HalvesSubtreesUntilTheyFit) {
  EXPECT_EQ(subtrees(plan_passes({0, 8}, 8, 32, 16)), (Passes{{{0, 4}}, {{4, 4}}}));
  EXPECT_EQ(subtrees(plan_passes({3, 6}, 8, 32, 8)), (Passes{{{3, 1}}, {{4, 2}}}));
}

TEST(PlanPasses, TakesASingleShardHoweverLarge) {
  EXPECT_EQ(subtrees(plan_passes({0, 2}, 2, 100, 8)), (Passes{{{0, 1}}, {{1, 1}}}));
  EXPECT_EQ(most_examples_of_a_pass(2, 100, 8), 50);
}

// Walks all examples of all ranks and gives where the last one ended.
std::int64_t walk(const PassPlan& plan, std::int64_t next, std::int64_t most) {
  for (const auto& pass : plan.passes) {
    const std::int64_t begin = next;
    for (const Group& group : pass) {
      EXPECT_EQ(group.shards.size(), static_cast<std::size_t>(group.subtree.size));
      for (const Range& shard : group.shards) {
        EXPECT_EQ(shard.begin, next);
        next = shard.end;
      }
    }
    EXPECT_LE(next - begin, most);
  }
  return next;
}

TEST(PlanPasses, KeepsItsBoundAndEveryExampleOnceForAnySplit) {
  for (const int shards : {1, 2, 8, 16}) {
    for (const std::int64_t examples : {1, 5, 16, 33, 64}) {
      for (const std::int64_t limit : {1, 4, 16, 64}) {
        std::int64_t next = 0;
        for (const Range& own : collectives::even_split(std::min(3, shards), shards)) {
          next = walk(plan_passes(own, shards, examples, limit), next,
                      most_examples_of_a_pass(shards, examples, limit));
        }
        EXPECT_EQ(next, examples);
      }
    }
  }
}

TEST(PlanPasses, CountsTheGradientsThatAStepHoldsAtOnce) {
  EXPECT_EQ(plan_passes({0, 8}, 8, 32, 32).gradients(), 1) << "alone: one pass, one sum";
  EXPECT_EQ(plan_passes({0, 3}, 8, 32, 32).gradients(), 2) << "of three: one pass, two parts";
  EXPECT_EQ(plan_passes({0, 8}, 8, 32, 8).gradients(), 3)
      << "four passes, each added to its sibling";
}

// What begin_epoch() relies on: room for a whole batch is room for the short one at an epoch's end.
TEST(PlanPasses, HoldsNoMoreGradientsInAShorterStep) {
  for (const int shards : {1, 2, 8, 16}) {
    for (int world = 1; world <= shards; ++world) {
      for (const std::int64_t limit : {1, 3, 4, 16, 64}) {
        for (int rank = 0; rank < world; ++rank) {
          const Range own = collectives::shards_of(rank, world, shards);
          const int whole = plan_passes(own, shards, 64, limit).gradients();
          for (std::int64_t examples = 1; examples < 64; ++examples) {
            ASSERT_LE(plan_passes(own, shards, examples, limit).gradients(), whole)
                << examples << " examples, rank " << rank << " of " << world << ", " << shards
                << " shards, passes of " << limit;
          }
        }
      }
    }
  }
}

TEST(PlanPlainPasses, SharesTheExamplesEvenlyInAPowerOfTwoOfPasses) {
  for (const std::int64_t examples : {1, 7, 32, 100}) {
    for (const int world : {1, 2, 3}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const PassPlan plan = plan_plain_passes(rank, world, examples, 8);
        EXPECT_TRUE(std::has_single_bit(plan.passes.size()));
        next = walk(plan, next, 8);
      }
      EXPECT_EQ(next, examples);
    }
  }
}

}  // namespace
}  // namespace tilewright::train
