#include "worker/tasks/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/check.h"

namespace tilewright::tasks {
namespace {

void check_sizes(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels) {
  TW_CHECK(predictions.size() == labels.size() && !labels.empty(), "{} predictions, {} labels",
           predictions.size(), labels.size());
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

}  // namespace tilewright::tasks
