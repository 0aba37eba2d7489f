#include "worker/collectives/tree_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/unit/worker/collectives/reference.h"

namespace tilewright::collectives {
namespace {

constexpr std::int64_t kElements = 1003;

// A TreeAccumulator with the buffers that it needs.
struct OwningAccumulator {
  OwningAccumulator(const std::vector<Subtree>& micro_batches, std::int64_t count)
      : buffers(static_cast<std::size_t>(TreeAccumulator::buffers_needed(micro_batches)),
                Floats(static_cast<std::size_t>(count))) {
    std::vector<float*> data;
    for (Floats& buffer : buffers) data.push_back(buffer.data());
    accumulator.emplace(micro_batches, count, data);
  }
  TreeAccumulator& operator*() { return *accumulator; }
  TreeAccumulator* operator->() { return &*accumulator; }

  std::vector<Floats> buffers;
  std::optional<TreeAccumulator> accumulator;
};

// One step: each micro-batch writes the sum of its subtree and finishes it in two ranges.
void run_step(TreeAccumulator& accumulator, const std::vector<Floats>& shards,
              const std::vector<Subtree>& micro_batches) {
  accumulator.begin_step();
  for (const Subtree& micro_batch : micro_batches) {
    std::ranges::copy(tree_sum(shards, micro_batch.begin, micro_batch.size),
                      accumulator.begin_micro_batch().begin());
    accumulator.finish({700, kElements});  // the order does not matter
    accumulator.finish({0, 700});
    accumulator.end_micro_batch();
  }
}

void expect_parts_of(Range range, const TreeAccumulator& accumulator,
                     const std::vector<Floats>& shards) {
  const auto want = aligned_subtrees(range);
  const GradientParts& parts = accumulator.parts();
  ASSERT_EQ(parts.parts.size(), want.size());
  EXPECT_EQ(parts.count, kElements);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(parts.parts[i].subtree, want[i]);
    const float* data = parts.parts[i].data;
    EXPECT_TRUE(same_bits({data, data + kElements}, tree_sum(shards, want[i].begin, want[i].size)));
  }
}

TEST(TreeAccumulator, MergesSingleShardMicroBatchesIntoTheLargestSubtrees) {
  const auto shards = shard_gradients(16, kElements);
  for (int begin = 0; begin < 16; ++begin) {
    for (int end = begin + 1; end <= 16; ++end) {
      std::vector<Subtree> micro_batches;
      for (int shard = begin; shard < end; ++shard) micro_batches.push_back({shard, 1});
      OwningAccumulator accumulator(micro_batches, kElements);
      run_step(*accumulator, shards, micro_batches);
      expect_parts_of({begin, end}, *accumulator, shards);
    }
  }
}

TEST(TreeAccumulator, AcceptsMicroBatchesOfSeveralShards) {
  const auto shards = shard_gradients(16, kElements);
  for (const auto& micro_batches : {std::vector<Subtree>{{0, 16}},
                                    {{0, 8}, {8, 8}},
                                    {{0, 4}, {4, 2}, {6, 2}, {8, 8}},
                                    {{3, 1}, {4, 4}, {8, 2}, {10, 2}, {12, 1}, {13, 1}}}) {
    OwningAccumulator accumulator(micro_batches, kElements);
    run_step(*accumulator, shards, micro_batches);
    expect_parts_of({micro_batches.front().begin, micro_batches.back().end()}, *accumulator,
                    shards);
  }
}

TEST(TreeAccumulator, ReusesItsBuffersInEveryStep) {
  const std::vector<Subtree> micro_batches{{1, 1}, {2, 1}, {3, 1}, {4, 2}};
  OwningAccumulator accumulator(micro_batches, kElements);
  const float* buffer = accumulator->parts().sum;
  for (unsigned step = 0; step < 3; ++step) {
    const auto shards = shard_gradients(8, kElements, step);
    run_step(*accumulator, shards, micro_batches);
    expect_parts_of({1, 6}, *accumulator, shards);
    EXPECT_EQ(accumulator->parts().sum, buffer);
  }
}

TEST(TreeAccumulator, NeedsAtMostOneBufferPerTreeLevel) {
  std::vector<Subtree> micro_batches;
  micro_batches.reserve(64);
  for (int shard = 0; shard < 64; ++shard) micro_batches.push_back({shard, 1});
  EXPECT_EQ(TreeAccumulator::buffers_needed(micro_batches),
            7);  // one per level of 64, 32, ..., 1 shards
  EXPECT_EQ(TreeAccumulator::buffers_needed(std::vector<Subtree>{{0, 64}}), 1);
  EXPECT_EQ(TreeAccumulator::buffers_needed(std::vector<Subtree>{}), 1);
}

TEST(TreeAccumulator, UsesCallerBuffersAndReturnsItsPartsInAdvance) {
  const auto shards = shard_gradients(4, kElements);
  const std::vector<Subtree> micro_batches{{0, 1}, {1, 1}, {2, 1}};
  std::vector<Floats> memory(3, Floats(kElements));
  TreeAccumulator accumulator(micro_batches, kElements,
                              {memory[0].data(), memory[1].data(), memory[2].data()});
  const GradientParts before = accumulator.parts();
  run_step(accumulator, shards, micro_batches);
  expect_parts_of({0, 3}, accumulator, shards);
  ASSERT_EQ(before.parts.size(), 2u);
  EXPECT_EQ(before.parts[0].data, memory[0].data());
  EXPECT_EQ(before.parts[1].data, accumulator.parts().parts[1].data);
}

TEST(TreeAccumulator, RoundsMicroBatchesAndSumsToBf16) {
  constexpr std::int64_t kBf16 = 700;  // the boundary of run_step()'s ranges
  const auto shards = shard_gradients(4, kElements);
  const std::vector<Subtree> micro_batches{{0, 1}, {1, 1}, {2, 1}};
  std::vector<Floats> memory(3, Floats(kElements));
  TreeAccumulator accumulator(micro_batches, kElements,
                              {memory[0].data(), memory[1].data(), memory[2].data()}, kBf16);
  run_step(accumulator, shards, micro_batches);
  const GradientParts& parts = accumulator.parts();
  EXPECT_EQ(parts.bf16_count, kBf16);
  ASSERT_EQ(parts.parts.size(), 2u);
  for (const GradientPart& part : parts.parts) {
    EXPECT_TRUE(same_bits({part.data, part.data + kElements},
                          tree_sum(shards, part.subtree.begin, part.subtree.size, kBf16)));
  }
}

TEST(TreeAccumulator, FinishesDisjointRangesFromSeveralThreads) {
  const auto shards = shard_gradients(2, kElements);
  const std::vector<Subtree> micro_batches{{0, 1}, {1, 1}};
  OwningAccumulator accumulator(micro_batches, kElements);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    std::ranges::copy(shards[static_cast<std::size_t>(micro_batch)],
                      accumulator->begin_micro_batch().begin());
    std::thread other([&accumulator] { accumulator->finish({500, kElements}); });
    accumulator->finish({0, 500});
    other.join();
    accumulator->end_micro_batch();
  }
  expect_parts_of({0, 2}, *accumulator, shards);
}

TEST(TreeAccumulatorDeathTest, AbortsOnAMicroBatchWithUnfinishedElements) {
  OwningAccumulator accumulator({{0, 1}}, kElements);
  accumulator->begin_micro_batch();
  accumulator->finish({0, kElements - 1});
  EXPECT_DEATH(accumulator->end_micro_batch(), "1002 of 1003 elements finished");
}

}  // namespace
}  // namespace tilewright::collectives
