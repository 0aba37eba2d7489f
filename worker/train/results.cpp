#include "worker/train/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/files.h"
#include "common/base/strings.h"
#include "common/contract/training_report.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/storage.h"
#include "worker/train/log_history.h"

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

// `samples`: the name of the number of examples. `trained`: the state after a training, whose epoch
// the Trainer adds; nullptr: without one.
void add_evaluations(Results& results, MetricsJson& metrics, const std::string& prefix,
                     const std::string& samples, const checkpoint::TrainerState* trained,
                     std::span<const EvaluationResult> evaluations) {
  for (const EvaluationResult& evaluation : evaluations) {
    if (trained != nullptr) metrics["epoch" + evaluation.suffix] = trained->epoch;
    add_evaluation_metrics(metrics, prefix, evaluation);
    metrics[samples + evaluation.suffix] = evaluation.examples;
    results.files.insert(evaluation.prediction_files.begin(), evaluation.prediction_files.end());
  }
}

MetricsJson train_metrics(const Job& job, const Trainer& trainer) {
  const checkpoint::TrainerState& state = trainer.state();
  MetricsJson train;
  train["epoch"] = state.epoch;
  train["total_flos"] = state.total_flos;
  train["train_loss"] = mean_loss(state);
  add_speed(train, "train", trainer.train_seconds(), static_cast<double>(state.examples_consumed),
            static_cast<double>(state.global_step));
  train["train_samples"] = job.train_data.size();
  return train;
}

// With the entries that the Trainer adds at the end: the summary of the training, and before it the
// evaluations, unless the history has that of the same examples and weights.
std::string final_state_json(checkpoint::TrainerState state, const MetricsJson& train,
                             std::int64_t weights_step,
                             std::span<const EvaluationResult> evaluations) {
  const bool has_last_weights = weights_step == state.global_step;
  for (const EvaluationResult& evaluation : evaluations) {
    const auto is_same = [&](const nlohmann::json& entry) {
      return entry.contains("eval_runtime" + evaluation.suffix) &&
             entry.value("step", std::int64_t{0}) == state.global_step;
    };
    if (has_last_weights && std::ranges::any_of(state.log_history, is_same)) continue;
    state.log_history.push_back(evaluation_entry(evaluation, state));
  }
  nlohmann::json summary = train;
  summary.erase("train_samples");
  summary["step"] = state.global_step;
  state.log_history.push_back(std::move(summary));
  return checkpoint::trainer_state_json(state);
}

// "0:03:14.59", "1 day, 1:01:01.12": as Python prints a timedelta, with hundredths.
std::string format_runtime(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  const auto hundredths =
      static_cast<std::int64_t>(std::abs(seconds - static_cast<double>(whole)) * 100);
  const std::int64_t days = whole / 86400;
  const std::string prefix = days == 0 ? "" : counted(static_cast<std::size_t>(days), "day") + ", ";
  return fmt::format("{}{}:{:02}:{:02}.{:02}", prefix, whole / 3600 % 24, whole / 60 % 60,
                     whole % 60, hundredths);
}

// As Python prints the number, rounded to four decimals.
std::string format_number(double value) {
  const std::string decimals = fmt::format("{:.4f}", value);  // correctly rounded, as in Python
  std::string text = decimals.substr(0, decimals.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text += '0';
  return text;
}

std::string format_metric(const std::string& name, const nlohmann::ordered_json& value) {
  if (name.find("_runtime") != std::string::npos) return format_runtime(value.get<double>());
  if (name == "total_flos") {
    return fmt::format("{}GF", static_cast<std::int64_t>(value.get<double>()) >> 30);
  }
  return value.is_number_float() ? format_number(value.get<double>()) : value.dump();
}

// As Trainer.save_metrics writes it: sorted by name.
std::string file_content(const nlohmann::json& metrics) { return metrics.dump(4) + "\n"; }

// The metrics in a file of an earlier run; none if it has no metrics. An error that may pass is a
// Failure.
nlohmann::json earlier_metrics(const std::filesystem::path& file) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;
  const Result<std::string> text =
      read_regular_file(file, kMaxBytes, ExitCode::kOutput, ExitCode::kOutputUnavailable);
  if (!text.ok() && text.error().code == ExitCode::kOutputUnavailable) {
    throw Failure(text.error());
  }
  nlohmann::json metrics =
      text.ok() ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json::object();
  return metrics.is_object() ? metrics : nlohmann::json::object();
}

}  // namespace

void write_result_files(const std::filesystem::path& directory,
                        std::map<std::string, std::string> files) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    checkpoint::fail_storage(directory, "create the output directory", error.value());
  }
  const auto all = files.extract(training_report::kAllResultsFile);
  for (const auto& [name, content] : files) {
    write_file_atomically(directory / name, content).or_throw();
  }
  if (all.empty()) return;
  nlohmann::json metrics = earlier_metrics(directory / all.key());
  metrics.update(nlohmann::json::parse(all.mapped()));
  write_file_atomically(directory / all.key(), file_content(metrics)).or_throw();
}

std::string metrics_blocks(const Results& results) {
  std::string text;
  for (const auto& [split, metrics] :
       {std::pair("train", &results.train), std::pair("eval", &results.eval),
        std::pair("predict", &results.predict)}) {
    for (const std::string& line : metrics_block(split, *metrics)) text += line + "\n";
  }
  return text;
}

Results make_results(const Job& job, const Trainer& trainer, std::int64_t weights_step,
                     runtime::Isa isa, std::span<const EvaluationResult> evaluations,
                     std::span<const EvaluationResult> predictions) {
  Results results;
  MetricsJson all;
  const auto add_file = [&](const char* name, const MetricsJson& content) {
    all.update(content);
    results.files[name] = file_content(content);
  };
  if (job.settings.do_train) {
    results.train = train_metrics(job, trainer);
    MetricsJson content;
    if (!job.settings.run_name.empty()) content["run_name"] = job.settings.run_name;
    content.update(results.train);
    content["train_instruction_set"] = runtime::name(isa);
    content["train_exact"] = job.settings.exact;
    add_file("train_results.json", content);
    results.files[checkpoint::kStateFile] =
        final_state_json(trainer.state(), results.train, weights_step, evaluations);
  }
  if (!evaluations.empty()) {
    add_evaluations(results, results.eval, "eval", "eval_samples",
                    job.settings.do_train ? &trainer.state() : nullptr, evaluations);
    add_file(training_report::kEvaluationFile, results.eval);
  }
  if (!predictions.empty()) {
    const bool answers = job.task != nullptr && job.task->head() == nn::Head::kQuestionAnswering;
    add_evaluations(results, results.predict, answers ? kQuestionAnsweringPrediction : "predict",
                    "predict_samples", nullptr, predictions);
    add_file("predict_results.json", results.predict);
  }
  results.files[training_report::kAllResultsFile] = file_content(all);
  return results;
}

std::vector<std::string> metrics_block(std::string_view split, const MetricsJson& metrics) {
  std::map<std::string, std::string> formatted;
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const auto& [name, value] : metrics.items()) {
    if (!value.is_number()) continue;
    const std::string& text = formatted[name] = format_metric(name, value);
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, text.size());
  }
  std::vector<std::string> lines;
  if (formatted.empty()) return lines;
  lines.push_back(fmt::format("***** {} metrics *****", split));
  for (const auto& [name, text] : formatted) {
    lines.push_back(fmt::format("  {:<{}} = {:>{}}", name, name_width, text, value_width));
  }
  return lines;
}

}  // namespace tilewright::train
