#include "worker/collectives/balanced_split.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tilewright::collectives {
namespace {

using Split = std::vector<Range>;

constexpr double kAnyCost = std::numeric_limits<double>::infinity();

bool any(int, Range) { return true; }

// Calls `visit` with every split in which each rank has at least one shard.
void for_every_split(int world, int shards, const std::function<void(const Split&)>& visit,
                     Split split = {}) {
  const std::int64_t begin = split.empty() ? 0 : split.back().end;
  const auto rank = static_cast<int>(split.size());
  if (rank == world) {
    if (begin == shards) visit(split);
    return;
  }
  for (std::int64_t end = begin + 1; end <= shards - (world - 1 - rank); ++end) {
    split.push_back({begin, end});
    for_every_split(world, shards, visit, split);
    split.pop_back();
  }
}

std::size_t subtrees_in(const Split& split) {
  std::size_t count = 0;
  for (const Range& range : split) count += aligned_subtrees(range).size();
  return count;
}

TEST(BalancedSplit, GivesASlowRankFewerShards) {
  EXPECT_EQ(balanced_split(std::vector{1.0, 2.0}, 8, kAnyCost, any), (Split{{0, 6}, {6, 8}}))
      << "5 and 3 shards take as long but are four subtrees in place of three";
  EXPECT_EQ(balanced_split(std::vector{3.0, 1.0, 1.0, 1.0}, 8, kAnyCost, any)->front(),
            (Range{0, 1}));
  EXPECT_EQ(balanced_split(std::vector{1.0, 100.0}, 8, kAnyCost, any), (Split{{0, 7}, {7, 8}}))
      << "every rank has a shard";
}

TEST(BalancedSplit, IsTheEvenSplitForEqualRanks) {
  for (const int world : {1, 2, 4, 8}) {
    const std::vector<double> costs(static_cast<std::size_t>(world), 0.5);
    EXPECT_EQ(balanced_split(costs, 8, kAnyCost, any), even_split(world, 8)) << world;
  }
}

// The bound of a restricted split leaves out what a rank's memory does not hold.
TEST(BalancedSplit, HasTheSmallestCostAndThenTheFewestSubtreesOfAllSplits) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const int shards = 1 << (random() % 5);
    const int world = 1 + static_cast<int>(random() % static_cast<unsigned>(std::min(shards, 4)));
    std::vector<double> costs(static_cast<std::size_t>(world));
    for (double& cost : costs) cost = 1 + (random() % 8) / 4.0;
    const std::size_t most_subtrees = trial % 2 == 0 ? 100 : 1 + random() % 3;
    const auto is_allowed = [&](int, Range range) {
      return aligned_subtrees(range).size() <= most_subtrees;
    };
    double cost = kAnyCost;
    std::size_t subtrees = 0;
    for_every_split(world, shards, [&](const Split& split) {
      for (const Range& range : split) {
        if (!is_allowed(0, range)) return;
      }
      const double own = expected_cost(split, costs);
      if (own > cost || (own == cost && subtrees_in(split) >= subtrees)) return;
      cost = own;
      subtrees = subtrees_in(split);
    });
    const auto found = balanced_split(costs, shards, kAnyCost, is_allowed);
    ASSERT_EQ(found.has_value(), cost < kAnyCost) << trial;
    EXPECT_EQ(balanced_split(costs, shards, cost * 0.999, is_allowed), std::nullopt) << trial;
    if (!found) continue;
    EXPECT_EQ(expected_cost(*found, costs), cost) << trial;
    EXPECT_EQ(subtrees_in(*found), subtrees) << trial;
    std::int64_t next = 0;
    for (const Range& range : *found) {
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.size(), 0);
      next = range.end;
    }
    EXPECT_EQ(next, shards);
    EXPECT_EQ(balanced_split(costs, shards, cost, is_allowed), found) << "not deterministic";
  }
}

TEST(BalancedSplit, NeedsAShardForEveryRank) {
  EXPECT_EQ(balanced_split(std::vector{1.0, 1.0, 1.0}, 2, kAnyCost, any), std::nullopt);
}

}  // namespace
}  // namespace tilewright::collectives
