#include "worker/train/trainer_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace tilewright::train {
namespace {

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

// The numbers of examples that SQuAD's metrics count: "total", "HasAns_total", "NoAns_total".
bool is_count(std::string_view metric) { return metric.ends_with("total"); }

}  // namespace

void add_speed(MetricsJson& metrics, const std::string& prefix, double seconds, double samples,
               double steps) {
  metrics[prefix + "_runtime"] = rounded(seconds, 4);
  if (seconds <= 0) return;
  metrics[prefix + "_samples_per_second"] = rounded(samples / seconds, 3);
  metrics[prefix + "_steps_per_second"] = rounded(steps / seconds, 3);
}

void add_evaluation_metrics(MetricsJson& metrics, const std::string& prefix,
                            const EvaluationResult& evaluation) {
  MetricsJson own;
  for (const auto& [name, value] : evaluation.metrics) {
    MetricsJson& metric = own[fmt::format("{}_{}", prefix, name)];
    if (is_count(name)) {
      metric = static_cast<std::int64_t>(value);
    } else {
      metric = value;
    }
  }
  if (!evaluation.metrics.empty() && prefix != kQuestionAnsweringPrediction) {
    own[prefix + "_loss"] = evaluation.loss;
  }
  add_speed(own, prefix, evaluation.seconds, static_cast<double>(evaluation.examples),
            static_cast<double>(evaluation.steps));
  for (const auto& [name, value] : own.items()) metrics[name + evaluation.suffix] = value;
}

}  // namespace tilewright::train
