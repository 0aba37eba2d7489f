#include "worker/train/shard_balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tilewright::train {
namespace {

using collectives::even_split;
using collectives::Range;
using Split = std::vector<Range>;

bool any(int, Range) { return true; }

// Windows of two steps, so that a change takes six.
constexpr BalancerOptions kOptions{.window_steps = 2, .window_seconds = 0};

// Workers that need these times for one shard, under a balancer that moves shards freely.
class Workers {
 public:
  Workers(std::vector<double> seconds_per_shard, int shards, bool movable = true,
          const BalancerOptions& options = kOptions)
      : balancer(static_cast<int>(seconds_per_shard.size()), shards, movable, options),
        seconds_per_shard_(std::move(seconds_per_shard)) {}

  // Each step costs a worker the time of so many shards more.
  void set_fixed_shards(double shards) { fixed_shards_ = shards; }
  void set_seconds(std::size_t rank, double seconds) { seconds_per_shard_[rank] = seconds; }
  // Trains and returns how often shards moved.
  int train(int steps) {
    int moves = 0;
    for (int step = 0; step < steps; ++step) {
      if (!balancer.add(costs())) continue;
      if (const auto split = balancer.better_split(any)) {
        balancer.set_split(*split);
        ++moves;
      }
    }
    return moves;
  }
  std::vector<RankCost> costs() const {
    std::vector<RankCost> costs;
    for (std::size_t rank = 0; rank < seconds_per_shard_.size(); ++rank) {
      const auto shards = static_cast<double>(balancer.split()[rank].size());
      costs.push_back({(fixed_shards_ + shards) * seconds_per_shard_[rank], shards * 1e9});
    }
    return costs;
  }
  std::vector<bool> slow() const {
    std::vector<bool> slow;
    for (const RankSpeed& speed : balancer.speeds()) slow.push_back(speed.slow);
    return slow;
  }

  ShardBalancer balancer;

 private:
  std::vector<double> seconds_per_shard_;
  double fixed_shards_ = 0;
};

TEST(ShardBalancer, KeepsTheEvenSplitOfEqualWorkers) {
  Workers workers({1, 1.1, 0.9, 1}, 8);
  EXPECT_EQ(workers.train(100), 0);
  EXPECT_EQ(workers.balancer.split(), even_split(4, 8));
  EXPECT_EQ(workers.slow(), (std::vector<bool>{false, false, false, false}));
}

TEST(ShardBalancer, MovesShardsFromAWorkerThatStaysSlowForThreeWindows) {
  Workers workers({1, 2}, 8);
  EXPECT_EQ(workers.train(5), 0);
  EXPECT_EQ(workers.slow(), (std::vector<bool>{false, false}));
  EXPECT_EQ(workers.train(1), 1);
  EXPECT_EQ(workers.slow(), (std::vector<bool>{false, true}));
  EXPECT_TRUE(workers.balancer.slow_ranks_changed());
  EXPECT_EQ(workers.balancer.split(), (Split{{0, 6}, {6, 8}}));
  const RankSpeed& speed = workers.balancer.speeds()[1];
  EXPECT_EQ(speed.seconds, 8);
  EXPECT_EQ(speed.others_seconds, 4);
  EXPECT_EQ(speed.slowdown, 2);
  EXPECT_EQ(workers.train(30), 0) << "the split fits the speeds";
  EXPECT_FALSE(workers.balancer.slow_ranks_changed());
}

TEST(ShardBalancer, IgnoresADisturbanceOfTwoWindows) {
  Workers workers({1, 1, 1}, 8);
  for (int i = 0; i < 10; ++i) {
    workers.set_seconds(2, 5);
    EXPECT_EQ(workers.train(4), 0);
    workers.set_seconds(2, 1);
    EXPECT_EQ(workers.train(2), 0);
  }
}

TEST(ShardBalancer, IgnoresSingleSlowStepsInAWindow) {
  Workers workers({1, 1}, 8, true, {.window_steps = 5, .window_seconds = 0});
  for (int i = 0; i < 100; ++i) {
    workers.set_seconds(0, i % 5 < 2 ? 100 : 1);
    EXPECT_EQ(workers.train(1), 0);
  }
}

TEST(ShardBalancer, ReturnsToTheEvenSplitWhenTheWorkerHasRecovered) {
  Workers workers({1, 4, 1, 1}, 16);
  EXPECT_EQ(workers.train(20), 1);
  EXPECT_LT(workers.balancer.split()[1].size(), 3);
  workers.set_seconds(1, 1.1);
  EXPECT_EQ(workers.train(4), 0);
  EXPECT_EQ(workers.train(2), 1);
  EXPECT_EQ(workers.balancer.split(), even_split(4, 16));
  EXPECT_EQ(workers.slow(), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(workers.train(100), 0);
}

// With one shard a recovered worker takes 2.8 times as long per shard as the other with seven.
TEST(ShardBalancer, NoticesTheRecoveryOfAWorkerWithFewShardsAndAFixedCost) {
  Workers workers({1, 4}, 8);
  workers.set_fixed_shards(3);
  EXPECT_EQ(workers.train(20), 1);
  EXPECT_EQ(workers.balancer.split(), (Split{{0, 7}, {7, 8}}));
  EXPECT_NEAR(workers.balancer.speeds()[1].slowdown, 4, 1e-9);
  workers.set_seconds(1, 1);
  EXPECT_EQ(workers.train(6), 1);
  EXPECT_EQ(workers.balancer.split(), even_split(2, 8));
  EXPECT_EQ(workers.train(100), 0);
  EXPECT_FALSE(workers.slow()[1]);
}

// After 20 windows, then 40: the ranks are measured again with the even split for three windows.
TEST(ShardBalancer, ReturnsToTheEvenSplitNowAndThen) {
  Workers workers({1, 2}, 8);
  EXPECT_EQ(workers.train(6), 1);
  EXPECT_EQ(workers.train(39), 0);
  EXPECT_EQ(workers.train(1), 1);
  EXPECT_EQ(workers.balancer.split(), even_split(2, 8));
  EXPECT_TRUE(workers.slow()[1]);
  EXPECT_EQ(workers.train(6), 1);
  EXPECT_EQ(workers.balancer.split(), (Split{{0, 6}, {6, 8}}));
  EXPECT_EQ(workers.train(79), 0);
  EXPECT_EQ(workers.train(1), 1);
  EXPECT_EQ(workers.balancer.split(), even_split(2, 8));
}

// Between the two bounds a worker stays what it is.
TEST(ShardBalancer, HasHysteresis) {
  Workers workers({1, 1.25}, 8);
  workers.train(100);
  EXPECT_FALSE(workers.slow()[1]);
  workers.set_seconds(1, 1.5);
  workers.train(20);
  EXPECT_TRUE(workers.slow()[1]);
  workers.set_seconds(1, 1.25);
  workers.train(200);
  EXPECT_TRUE(workers.slow()[1]);
  workers.set_seconds(1, 1.1);
  workers.train(20);
  EXPECT_FALSE(workers.slow()[1]);
}

TEST(ShardBalancer, FollowsAWorkerThatBecomesStillSlower) {
  Workers workers({1, 2}, 8);
  workers.train(6);
  EXPECT_EQ(workers.balancer.split(), (Split{{0, 6}, {6, 8}}));
  workers.set_seconds(1, 7);
  EXPECT_EQ(workers.train(4), 0) << "moves are three windows apart";
  EXPECT_EQ(workers.train(2), 1);
  EXPECT_EQ(workers.balancer.split(), (Split{{0, 7}, {7, 8}}));
}

TEST(ShardBalancer, MovesNothingForLessThanATenthOfTheTime) {
  Workers workers({1, 1.35}, 4);
  EXPECT_EQ(workers.train(100), 0) << "three and one shards take 3 in place of 2.7";
  EXPECT_TRUE(workers.slow()[1]);
}

TEST(ShardBalancer, ComparesHalfOfTheWorkersWithTheOtherHalf) {
  Workers workers({1, 3, 3, 1}, 16);
  EXPECT_EQ(workers.train(6), 1);
  EXPECT_EQ(workers.slow(), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(collectives::Range(workers.balancer.split()[1]).size(), 2);
}

TEST(ShardBalancer, NamesASlowWorkerWhoseShardsCannotMove) {
  Workers workers({1, 1, 4}, 8, false);
  EXPECT_EQ(workers.train(6), 0);
  EXPECT_TRUE(workers.slow()[2]);
  Workers single({1, 4}, 2);
  EXPECT_EQ(single.train(6), 0) << "each worker keeps one shard";
  EXPECT_TRUE(single.slow()[1]);
}

TEST(ShardBalancer, GivesNoWorkerMoreThanItIsAllowed) {
  Workers workers({1, 4}, 8);
  for (int step = 0; step < 6; ++step) workers.balancer.add(workers.costs());
  const auto split =
      workers.balancer.better_split([](int, Range range) { return range.size() <= 5; });
  EXPECT_EQ(split, (Split{{0, 5}, {5, 8}}));
  workers.balancer.postpone();
  EXPECT_EQ(workers.balancer.better_split(any), std::nullopt);
}

TEST(ShardBalancer, SkipsStepsInWhichNotAllRanksWereMeasured) {
  Workers workers({1, 4}, 8);
  std::vector<RankCost> costs = workers.costs();
  costs[0].seconds = 0;
  for (int step = 0; step < 100; ++step) EXPECT_FALSE(workers.balancer.add(costs));
}

TEST(ShardBalancer, EndsNoWindowBeforeItsTime) {
  Workers workers({1e-3, 2e-3}, 2, true, {.window_steps = 5, .window_seconds = 1});
  int steps = 0;
  do {
    ++steps;
  } while (!workers.balancer.add(workers.costs()));
  EXPECT_NEAR(steps, 500, 1) << "1 s at 2 ms per step of the slowest rank";
}

// Any sequence of speeds: the splits cover all shards, two balancers with the same numbers agree,
// and moves are at least three windows apart.
TEST(ShardBalancer, DecidesTheSameFromTheSameNumbers) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const int shards = 4 << (random() % 4);
    const int world = 2 + static_cast<int>(random() % 3);
    Workers one(std::vector<double>(static_cast<std::size_t>(world), 1.0), shards);
    Workers two = one;
    int last_move = -100;
    for (int step = 0; step < 300; ++step) {
      if (step % 25 == 0) {
        const std::size_t rank = random() % static_cast<unsigned>(world);
        const double seconds = 1 + (random() % 5) / 2.0;
        one.set_seconds(rank, seconds);
        two.set_seconds(rank, seconds);
      }
      const int moves = one.train(1);
      EXPECT_EQ(two.train(1), moves);
      ASSERT_EQ(one.balancer.split(), two.balancer.split());
      std::int64_t next = 0;
      for (const Range& range : one.balancer.split()) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GT(range.size(), 0);
        next = range.end;
      }
      EXPECT_EQ(next, shards);
      if (moves == 0) continue;
      EXPECT_GE(step - last_move, 6);
      last_move = step;
    }
  }
}

}  // namespace
}  // namespace tilewright::train
