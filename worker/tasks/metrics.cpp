#include "worker/tasks/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "common/base/check.h"

namespace tilewright::tasks {
namespace {

void check_sizes(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  TW_CHECK(predictions.size() == labels.size() && !labels.empty(), "{} predictions, {} labels",
           predictions.size(), labels.size());
}

void check_sizes(std::span<const float> predictions, std::span<const float> values) {
  TW_CHECK(predictions.size() == values.size() && !values.empty(), "{} predictions, {} values",
           predictions.size(), values.size());
}

// The differences from the mean, divided by their norm; empty if they are all 0.
std::vector<double> standardized(const std::vector<double>& values) {
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  if (*least == *greatest) return {};
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  std::vector<double> differences;
  differences.reserve(values.size());
  for (const double value : values) {
    differences.push_back(value - mean);
    squares += differences.back() * differences.back();
  }
  const double norm = std::sqrt(squares);
  for (double& difference : differences) difference /= norm;
  return differences;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = standardized(a);
  const std::vector<double> y = standardized(b);
  if (x.empty() || y.empty()) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return std::clamp(sum, -1.0, 1.0);
}

// From 1; equal values have the mean of their ranks.
std::vector<double> ranks(std::span<const float> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + 1 + end) / 2;
    for (; begin < end; ++begin) ranks[order[begin]] = mean;
  }
  return ranks;
}

}  // namespace

std::vector<std::int32_t> predictions_of(std::span<const float> logits, int num_labels) {
  const auto width = static_cast<std::size_t>(num_labels);
  TW_CHECK(num_labels > 0 && logits.size() % width == 0, "{} logits for {} labels", logits.size(),
           num_labels);
  std::vector<std::int32_t> predictions;
  predictions.reserve(logits.size() / width);
  for (std::size_t row = 0; row < logits.size(); row += width) {
    const auto values = logits.subspan(row, width);
    const auto best = std::max_element(values.begin(), values.end());
    predictions.push_back(static_cast<std::int32_t>(best - values.begin()));
  }
  return predictions;
}

double accuracy(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  check_sizes(predictions, labels);
  std::size_t right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) right += predictions[i] == labels[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

double f1(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  check_sizes(predictions, labels);
  std::size_t both = 0;
  std::size_t either = 0;  // counted once for each side: 2 tp + fp + fn
  for (std::size_t i = 0; i < labels.size(); ++i) {
    both += predictions[i] == 1 && labels[i] == 1 ? 1 : 0;
    either += (predictions[i] == 1 ? 1U : 0U) + (labels[i] == 1 ? 1U : 0U);
  }
  return either == 0 ? 0 : 2 * static_cast<double>(both) / static_cast<double>(either);
}

double matthews_correlation(std::span<const std::int32_t> predictions,
                            std::span<const std::int32_t> labels) {
  check_sizes(predictions, labels);
  std::map<std::int32_t, std::pair<double, double>> counts;  // class -> predicted, true
  double right = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    counts[predictions[i]].first += 1;
    counts[labels[i]].second += 1;
    right += predictions[i] == labels[i] ? 1 : 0;
  }
  const auto all = static_cast<double>(labels.size());
  double covariance = right * all;
  double predicted_variance = all * all;
  double true_variance = all * all;
  for (const auto& [label, count] : counts) {
    covariance -= count.first * count.second;
    predicted_variance -= count.first * count.first;
    true_variance -= count.second * count.second;
  }
  const double product = predicted_variance * true_variance;
  return product == 0 ? 0 : covariance / std::sqrt(product);
}

double pearson(std::span<const float> predictions, std::span<const float> values) {
  check_sizes(predictions, values);
  return correlation({predictions.begin(), predictions.end()}, {values.begin(), values.end()});
}

double spearman(std::span<const float> predictions, std::span<const float> values) {
  check_sizes(predictions, values);
  const auto is_nan = [](float x) { return std::isnan(x); };
  if (std::ranges::any_of(predictions, is_nan) || std::ranges::any_of(values, is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();  // as scipy; NaN has no rank
  }
  return correlation(ranks(predictions), ranks(values));
}

double mean_squared_error(std::span<const float> predictions, std::span<const float> values) {
  check_sizes(predictions, values);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(predictions[i]) - values[i];
    sum += difference * difference;
  }
  return sum / static_cast<double>(values.size());
}

}  // namespace tilewright::tasks
