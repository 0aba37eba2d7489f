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

// All three take as many predictions as labels, at least one, and lie in 0..1, Matthews' in -1..1.
double accuracy(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels);

// 2 tp / (2 tp + fp + fn) of label 1; 0 where neither side has it.
double f1(std::span<const std::int32_t> predictions, std::span<const std::int32_t> labels);

// The correlation coefficient of Matthews for any number of classes (Gorodkin 2004); 0 where either
// side has one class only.
double matthews_correlation(std::span<const std::int32_t> predictions,
                            std::span<const std::int32_t> labels);

// Of a regression: as many predictions as values, at least one, all finite.

// Pearson's correlation coefficient, -1..1; 0 where either side is constant or has one element,
// for which SciPy gives NaN.
double pearson(std::span<const float> predictions, std::span<const float> values);

// Spearman's: Pearson's of the ranks, of which equal elements have the mean.
double spearman(std::span<const float> predictions, std::span<const float> values);

double mean_squared_error(std::span<const float> predictions, std::span<const float> values);

}  // namespace tilewright::tasks
