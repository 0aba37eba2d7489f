#include "worker/collectives/tree_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/unit/worker/collectives/reference.h"

namespace tilewright::collectives {
namespace {

constexpr std::int64_t kCount = 1003;

// One step: each pass writes its subtree's sum and finishes it in pieces.
void run_step(TreeAccumulator& accumulator, const std::vector<Floats>& shards,
              const std::vector<Subtree>& passes) {
  accumulator.begin_step();
  for (const Subtree& pass : passes) {
    std::ranges::copy(tree_sum(shards, pass.begin, pass.size), accumulator.begin_pass().begin());
    accumulator.finish({700, kCount});  // in the order of a backward pass
    accumulator.finish({0, 700});
    accumulator.end_pass();
  }
}

void expect_parts_of(Range range, const TreeAccumulator& accumulator,
                     const std::vector<Floats>& shards) {
  const auto want = aligned_subtrees(range);
  const GradientParts& parts = accumulator.parts();
  ASSERT_EQ(parts.parts.size(), want.size());
  EXPECT_EQ(parts.count, kCount);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(parts.parts[i].subtree, want[i]);
    const float* data = parts.parts[i].data;
    EXPECT_TRUE(same_bits({data, data + kCount}, tree_sum(shards, want[i].begin, want[i].size)));
  }
}

TEST(TreeAccumulator, MergesOneShardAPassIntoTheLargestSubtrees) {
  const auto shards = shard_gradients(16, kCount);
  for (int begin = 0; begin < 16; ++begin) {
    for (int end = begin + 1; end <= 16; ++end) {
      std::vector<Subtree> passes;
      for (int shard = begin; shard < end; ++shard) passes.push_back({shard, 1});
      TreeAccumulator accumulator(passes, kCount);
      run_step(accumulator, shards, passes);
      expect_parts_of({begin, end}, accumulator, shards);
    }
  }
}

TEST(TreeAccumulator, TakesPassesOfSeveralShards) {
  const auto shards = shard_gradients(16, kCount);
  for (const auto& passes : {std::vector<Subtree>{{0, 16}},
                             {{0, 8}, {8, 8}},
                             {{0, 4}, {4, 2}, {6, 2}, {8, 8}},
                             {{3, 1}, {4, 4}, {8, 2}, {10, 2}, {12, 1}, {13, 1}}}) {
    TreeAccumulator accumulator(passes, kCount);
    run_step(accumulator, shards, passes);
    expect_parts_of({passes.front().begin, passes.back().end()}, accumulator, shards);
  }
}

TEST(TreeAccumulator, GivesTheSameInEveryStepFromTheSameBuffers) {
  const std::vector<Subtree> passes{{1, 1}, {2, 1}, {3, 1}, {4, 2}};
  TreeAccumulator accumulator(passes, kCount);
  const float* buffer = accumulator.parts().sum;
  for (unsigned step = 0; step < 3; ++step) {
    const auto shards = shard_gradients(8, kCount, step);
    run_step(accumulator, shards, passes);
    expect_parts_of({1, 6}, accumulator, shards);
    EXPECT_EQ(accumulator.parts().sum, buffer);
  }
}

TEST(TreeAccumulator, NeedsNoMoreBuffersThanTheTreeIsDeep) {
  std::vector<Subtree> passes;
  for (int shard = 0; shard < 64; ++shard) passes.push_back({shard, 1});
  EXPECT_EQ(TreeAccumulator::buffers_needed(passes), 7);  // one a level of 64, 32, ..., 1 shards
  EXPECT_EQ(TreeAccumulator::buffers_needed(std::vector<Subtree>{{0, 64}}), 1);
  EXPECT_EQ(TreeAccumulator::buffers_needed(std::vector<Subtree>{}), 1);
}

TEST(TreeAccumulator, WorksOnBuffersOfTheCallerAndKnowsItsPartsBeforehand) {
  const auto shards = shard_gradients(4, kCount);
  const std::vector<Subtree> passes{{0, 1}, {1, 1}, {2, 1}};
  std::vector<Floats> memory(3, Floats(kCount));
  TreeAccumulator accumulator(passes, kCount,
                              {memory[0].data(), memory[1].data(), memory[2].data()});
  const GradientParts before = accumulator.parts();
  run_step(accumulator, shards, passes);
  expect_parts_of({0, 3}, accumulator, shards);
  ASSERT_EQ(before.parts.size(), 2u);
  EXPECT_EQ(before.parts[0].data, memory[0].data());
  EXPECT_EQ(before.parts[1].data, accumulator.parts().parts[1].data);
}

TEST(TreeAccumulator, FinishesDisjointRangesFromSeveralThreads) {
  const auto shards = shard_gradients(2, kCount);
  const std::vector<Subtree> passes{{0, 1}, {1, 1}};
  TreeAccumulator accumulator(passes, kCount);
  for (int pass = 0; pass < 2; ++pass) {
    std::ranges::copy(shards[static_cast<std::size_t>(pass)], accumulator.begin_pass().begin());
    std::thread other([&accumulator] { accumulator.finish({500, kCount}); });
    accumulator.finish({0, 500});
    other.join();
    accumulator.end_pass();
  }
  expect_parts_of({0, 2}, accumulator, shards);
}

TEST(TreeAccumulatorDeathTest, APassThatDidNotFinishEveryElementIsABug) {
  TreeAccumulator accumulator({{0, 1}}, kCount);
  accumulator.begin_pass();
  accumulator.finish({0, kCount - 1});
  EXPECT_DEATH(accumulator.end_pass(), "1002 of 1003 elements finished");
}

}  // namespace
}  // namespace tilewright::collectives
