// Classification metrics with the same values as in scikit-learn.
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

}  // namespace tilewright::tasks
