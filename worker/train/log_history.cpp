#include "worker/train/log_history.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/contract/training_report.h"
#include "worker/train/trainer_metrics.h"

namespace tilewright::train {

nlohmann::json evaluation_entry(const EvaluationResult& evaluation,
                                const checkpoint::TrainerState& state) {
  MetricsJson metrics;
  metrics["epoch"] = state.epoch;
  add_evaluation_metrics(metrics, "eval", evaluation);
  metrics["step"] = state.global_step;
  return metrics;
}

std::map<std::string, double> last_evaluation_metrics(const checkpoint::TrainerState& state) {
  const auto is_metric = [](const std::string& name) {
    const std::optional<std::string_view> metric = training_report::evaluation_result(name);
    return metric.has_value() && !metric->starts_with("loss") && !metric->starts_with("runtime") &&
           metric->find("_per_second") == std::string_view::npos;
  };
  std::map<std::string, double> metrics;
  std::int64_t step = -1;
  for (auto entry = state.log_history.rbegin(); entry != state.log_history.rend(); ++entry) {
    const std::int64_t step_of_entry = entry->value("step", std::int64_t{0});
    if (!metrics.empty() && step_of_entry != step) break;
    step = step_of_entry;
    for (const auto& [name, value] : entry->items()) {
      if (is_metric(name) && value.is_number()) metrics.emplace(name, value.get<double>());
    }
  }
  return metrics;
}

}  // namespace tilewright::train
