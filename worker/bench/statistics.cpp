#include "worker/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/check.h"

namespace tilewright::bench {
namespace {

constexpr double kConfidence = 0.95;

double sorted_median(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

// P(X = k), X ~ Binomial(n, 1/2); by logarithms, because 2^-n underflows above n = 1,074.
double half_binomial(double n, double k) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                  n * std::numbers::ln2);
}

}  // namespace

double median(std::vector<double> values) {
  TW_CHECK(!values.empty(), "median of no values");
  std::sort(values.begin(), values.end());
  return sorted_median(values);
}

std::optional<MedianInterval> median_interval(std::vector<double> values) {
  const std::size_t n = values.size();
  std::size_t j = 0;   // the interval begins at the j-th value
  double outside = 0;  // 2 P(X < j)
  for (;;) {
    const double next = outside + 2 * half_binomial(static_cast<double>(n), static_cast<double>(j));
    if (next > 1 - kConfidence) break;
    outside = next;
    ++j;
  }
  if (j == 0) return std::nullopt;
  std::sort(values.begin(), values.end());
  return MedianInterval{.median = sorted_median(values),
                        .low = values[j - 1],
                        .high = values[n - j],
                        .coverage = 1 - outside};
}

std::vector<double> PairedTimes::ratios() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return ratios;
}

}  // namespace tilewright::bench
