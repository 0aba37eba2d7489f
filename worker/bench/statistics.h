// Medians, and confidence intervals of the median of paired ratios.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "common/base/clock.h"

namespace tilewright::bench {

template <typename Body>
double seconds(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return in_seconds(std::chrono::steady_clock::now() - begin);
}

// The mean of the two middle values if their number is even. `values` must not be empty.
double median(std::vector<double> values);

// A confidence interval of the median of a distribution, of which only independence of the values
// is assumed. It is [x(j), x(n + 1 - j)] of the sorted values x(1) <= ... <= x(n) with the largest
// j whose coverage 1 - 2 P(X < j), X ~ Binomial(n, 1/2), is at least 95 %: the inversion of the
// sign test. Source: Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2; David and
// Nagaraja, Order Statistics, 3rd ed., section 7.1.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  double coverage = 0;  // at least 0.95
};

// The fewest values that have such an interval: 2 / 2^6 is the first below 5 %.
inline constexpr std::size_t kMinIntervalValues = 6;

// nullopt for less than kMinIntervalValues values.
std::optional<MedianInterval> median_interval(std::vector<double> values);

// The times of two alternatives a and b, measured in alternation. Pair i runs a first if i is even
// and b first if it is odd, so that a drift of the machine's speed favours neither.
struct PairedTimes {
  std::vector<double> a, b;            // seconds
  std::vector<double> ratios() const;  // a / b of each pair
};

template <typename A, typename B>
PairedTimes time_pairs(int pairs, A&& run_a, B&& run_b) {
  PairedTimes times;
  for (int pair = 0; pair < pairs; ++pair) {
    if (pair % 2 == 0) times.a.push_back(seconds(run_a));
    times.b.push_back(seconds(run_b));
    if (pair % 2 == 1) times.a.push_back(seconds(run_a));
  }
  return times;
}

}  // namespace tilewright::bench
