#include "worker/train/results.h"

#include <nlohmann/json.hpp>

#include "common/contract/training_report.h"

namespace tilewright::train {
namespace {

// Mean loss of all steps. An entry of the log history holds the mean of the steps since the entry
// before it.
double mean_loss(const checkpoint::TrainerState& state) {
  double sum = 0;
  std::int64_t before = 0;
  for (const auto& entry : state.log_history) {
    if (!entry.contains("loss")) continue;
    const auto step = entry["step"].get<std::int64_t>();
    sum += entry["loss"].get<double>() * static_cast<double>(step - before);
    before = step;
  }
  return before == 0 ? 0 : sum / static_cast<double>(before);
}

}  // namespace

std::map<std::string, std::string> result_files(const Job& job, const Trainer& trainer,
                                                runtime::Isa isa,
                                                std::span<const EvaluationResult> evaluations) {
  using Json = nlohmann::ordered_json;
  const checkpoint::TrainerState& state = trainer.state();
  const auto rate = [](double count, double seconds) { return seconds > 0 ? count / seconds : 0; };
  Json all;
  std::map<std::string, std::string> files;
  if (job.settings.do_train) {
    const double seconds = trainer.train_seconds();
    Json train;
    if (!job.settings.run_name.empty()) train["run_name"] = job.settings.run_name;
    train["epoch"] = state.epoch;
    train["total_flos"] = state.total_flos;
    train["train_loss"] = mean_loss(state);
    train["train_runtime"] = seconds;
    train["train_samples"] = job.train_data.size();
    train["train_samples_per_second"] = rate(static_cast<double>(state.examples_consumed), seconds);
    train["train_instruction_set"] = runtime::name(isa);
    train["train_exact"] = job.settings.exact;
    train["train_steps_per_second"] = rate(static_cast<double>(state.global_step), seconds);
    all.update(train);
    files["train_results.json"] = train.dump(2) + "\n";
    files["trainer_state.json"] = checkpoint::trainer_state_json(state);
  }
  if (!evaluations.empty()) {
    Json eval;
    eval["epoch"] = state.epoch;
    for (const EvaluationResult& evaluation : evaluations) {
      const auto set = [&](const std::string& name, const Json& value) {
        eval["eval_" + name + evaluation.suffix] = value;
      };
      for (const auto& [name, value] : evaluation.metrics) set(name, value);
      set("loss", evaluation.loss);
      set("runtime", evaluation.seconds);
      set("samples", evaluation.examples);
      set("samples_per_second", rate(static_cast<double>(evaluation.examples), evaluation.seconds));
      files.insert(evaluation.prediction_files.begin(), evaluation.prediction_files.end());
    }
    all.update(eval);
    files[training_report::kEvaluationFile] = eval.dump(2) + "\n";
  }
  files["all_results.json"] = all.dump(2) + "\n";
  return files;
}

}  // namespace tilewright::train
