#include "worker/bench/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>

namespace tilewright::bench {
namespace {

// n, n - 1, ..., 1.
std::vector<double> descending(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

TEST(Median, IsTheMiddleValueOrTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 2}), 3);
}

TEST(MedianInterval, HasTheRanksAndTheCoverageOfTheBinomialDistribution) {
  // P(X < j) counted by hand: the sums of the first binomial coefficients over 2^n.
  struct Case {
    int n, j;
    double less;  // 2^n P(X < j)
  };
  for (const Case& c : {Case{6, 1, 1}, Case{8, 1, 1}, Case{9, 2, 1 + 9}, Case{10, 2, 1 + 10},
                        Case{20, 6, 1 + 20 + 190 + 1140 + 4845 + 15504}}) {
    const auto interval = median_interval(descending(c.n));
    ASSERT_TRUE(interval) << c.n;
    EXPECT_EQ(interval->low, c.j) << c.n;
    EXPECT_EQ(interval->high, c.n + 1 - c.j) << c.n;
    EXPECT_NEAR(interval->coverage, 1 - 2 * c.less / std::ldexp(1.0, c.n), 1e-12) << c.n;
    EXPECT_EQ(interval->median, (c.n + 1) / 2.0);
  }
}

TEST(MedianInterval, NeedsSixValues) {
  EXPECT_FALSE(median_interval({}));
  EXPECT_FALSE(median_interval(descending(kMinIntervalValues - 1)));
  EXPECT_TRUE(median_interval(descending(kMinIntervalValues)));
}

TEST(MedianInterval, HasTheRanksOfTheNormalApproximationForManyValues) {
  // n / 2 - 1.96 sqrt(n) / 2 within one rank; 2^-10000 is below the smallest double.
  const auto interval = median_interval(descending(10000));
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->low, 5000 - 98, 2);
  EXPECT_EQ(interval->low + interval->high, 10001);
  EXPECT_NEAR(interval->coverage, 0.951, 0.001);
}

TEST(TimePairs, AlternatesWhichSideRunsFirst) {
  std::string order;
  const PairedTimes times = time_pairs(
      3, [&] { order += 'a'; }, [&] { order += 'b'; });
  EXPECT_EQ(order, "abbaab");
  EXPECT_EQ(times.a.size(), 3u);
  EXPECT_EQ(times.b.size(), 3u);
}

TEST(PairedTimes, DividesTheTimesOfEachPair) {
  const PairedTimes times{.a = {2, 9}, .b = {1, 3}};
  EXPECT_EQ(times.ratios(), (std::vector<double>{2, 3}));
}

}  // namespace
}  // namespace tilewright::bench
