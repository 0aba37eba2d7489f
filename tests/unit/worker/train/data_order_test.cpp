#include "worker/train/data_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace tilewright::train {
namespace {

DataOrder make_order(std::int64_t examples, std::int64_t global_batch, std::uint64_t seed,
                     std::vector<std::int32_t> lengths = {}) {
  return DataOrder({.examples = examples,
                    .examples_per_epoch = examples,
                    .global_batch = global_batch,
                    .seed = seed,
                    .lengths = std::move(lengths)});
}

std::vector<std::int32_t> batch(DataOrder& order, std::int64_t step) {
  const auto view = order.batch(step);
  return {view.begin(), view.end()};
}

TEST(DataOrder, VisitsEveryExampleOnceAnEpochAndEndsWithAShortBatch) {
  DataOrder order = make_order(103, 10, 7);
  ASSERT_EQ(order.steps_per_epoch(), 11);
  for (const int epoch : {0, 1}) {
    std::set<std::int32_t> seen;
    for (int step = 0; step < 11; ++step) {
      const auto examples = batch(order, epoch * 11 + step);
      EXPECT_EQ(examples.size(), step == 10 ? 3u : 10u);
      seen.insert(examples.begin(), examples.end());
    }
    EXPECT_EQ(seen.size(), 103u);
    EXPECT_EQ(*seen.rbegin(), 102);
  }
}

TEST(DataOrder, ComputesAnyStepWithoutThePreviousOnes) {
  DataOrder sequential = make_order(50, 8, 1);
  DataOrder random_access = make_order(50, 8, 1);
  const auto late = batch(random_access, 20);
  const auto early = batch(random_access, 3);
  std::vector<std::int32_t> late_sequential;
  for (int step = 0; step <= 20; ++step) {
    const auto now = batch(sequential, step);
    if (step == 3) {
      EXPECT_EQ(now, early);
    }
    if (step == 20) late_sequential = now;
  }
  EXPECT_EQ(late, late_sequential);
}

TEST(DataOrder, DiffersFromSeedToSeedAndEpochToEpoch) {
  DataOrder a = make_order(1000, 1000, 1);
  DataOrder b = make_order(1000, 1000, 2);
  EXPECT_NE(batch(a, 0), batch(b, 0));
  EXPECT_NE(batch(a, 0), batch(a, 1));
}

// The orders of two seeds may not be the same stream of random numbers, shifted by a few places: in
// independent orders, 5 of 1000 examples are within 2 of the other order's example.
TEST(DataOrder, NeighbouringSeedsAreIndependent) {
  for (const std::uint64_t seed : {0u, 1u, 42u}) {
    for (const int distance : {1, 2, 3}) {
      DataOrder a = make_order(1000, 1000, seed);
      DataOrder b = make_order(1000, 1000, seed + static_cast<std::uint64_t>(distance));
      const auto order_a = batch(a, 0);
      const auto order_b = batch(b, 0);
      for (std::size_t shift = 0; shift <= 8; ++shift) {
        int close = 0;
        for (std::size_t i = 4; i < order_a.size() - 4; ++i) {
          if (std::abs(order_a[i] - order_b[i + shift - 4]) <= 2) ++close;
        }
        EXPECT_LT(close, 30) << "seed " << seed << " + " << distance << ", shift " << shift
                             << " - 4";
      }
    }
  }
}

TEST(DataOrder, LeavesOutTheLastExamplesOfEachEpoch) {
  DataOrder order({.examples = 103, .examples_per_epoch = 96, .global_batch = 32, .seed = 7});
  DataOrder whole = make_order(103, 32, 7);
  ASSERT_EQ(order.steps_per_epoch(), 3);
  for (const int epoch : {0, 1}) {
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(batch(order, epoch * 3 + step), batch(whole, epoch * 4 + step));
    }
  }
}

// 1000 examples in batches of 8: groups of 31 batches.
TEST(DataOrder, GroupsExamplesOfSimilarLength) {
  std::vector<std::int32_t> lengths(1000);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<std::int32_t>(1 + i * i % 97);
  }
  DataOrder order = make_order(1000, 8, 3, lengths);
  DataOrder random = make_order(1000, 8, 3);
  const auto length = [&](std::int32_t i) { return lengths[static_cast<std::size_t>(i)]; };
  const auto spread = [&](DataOrder& of) {
    std::int64_t sum = 0;
    for (std::int64_t step = 0; step < of.steps_per_epoch(); ++step) {
      const auto examples = batch(of, step);
      const auto [low, high] = std::ranges::minmax(examples, {}, length);
      sum += length(high) - length(low);
    }
    return sum;
  };
  EXPECT_LT(spread(order) * 10, spread(random));
  EXPECT_EQ(length(batch(order, 0)[0]), *std::ranges::max_element(lengths));
  std::set<std::int32_t> seen;
  constexpr std::int64_t kGroup = 31;
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    std::set<std::int32_t> own;
    const auto examples = batch(order, step);
    seen.insert(examples.begin(), examples.end());
    // Within a group, sorted by length; the first example of the first two groups may be swapped.
    for (std::size_t i = 2; i < examples.size(); ++i) {
      EXPECT_GE(length(examples[i - 1]), length(examples[i])) << "step " << step % kGroup;
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(DataOrder, GroupsAnyStepWithoutThePreviousOnes) {
  std::vector<std::int32_t> lengths(50);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int32_t>(i % 7);
  DataOrder sequential = make_order(50, 8, 1, lengths);
  DataOrder random_access = make_order(50, 8, 1, lengths);
  const auto late = batch(random_access, 20);
  for (int step = 0; step < 20; ++step) batch(sequential, step);
  EXPECT_EQ(batch(sequential, 20), late);
  EXPECT_NE(batch(sequential, 0), batch(sequential, 7)) << "the next epoch";
}

}  // namespace
}  // namespace tilewright::train
