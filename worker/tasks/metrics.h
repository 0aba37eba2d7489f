// Metrics with the same values as in scikit-learn and SciPy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tilewright::tasks {

// Names in the order in which they are reported.
using Metrics = std::vector<std::pair<std::string, double>>;

// The label with the largest of each row's num_labels logits, the first of equals.
std::vector<std::int32_t> predictions_of(std::span<const float> logits, int num_labels);

// The share of equal pairs, 0..1. predictions, labels: [examples], not empty.
double accuracy(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels);

// 2 tp / (2 tp + fp + fn) of label 1, 0..1; 0 where neither side has it. predictions, labels:
// [examples], not empty.
double f1(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels);

// The correlation coefficient of Matthews for any number of classes (Gorodkin 2004), -1..1; 0 where
// either side has one class only. predictions, labels: [examples], not empty.
double matthews_correlation(std::span<const std::int32_t> predictions,
                            std::span<const std::int32_t> labels);

// Pearson's correlation coefficient, -1..1; 0 where either side is constant or has one element,
// for which SciPy gives NaN. predictions, values: [examples], not empty, finite.
double pearson(std::span<const float> predictions, std::span<const float> values);

// Spearman's correlation coefficient: Pearson's of the ranks. Equal elements have the mean of their
// ranks. predictions, values: [examples], not empty, finite.
double spearman(std::span<const float> predictions, std::span<const float> values);

// predictions, values: [examples], not empty, finite.
double mean_squared_error(std::span<const float> predictions, std::span<const float> values);

}  // namespace tilewright::tasks
