#include "worker/train/training_progress.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract/training_report.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/train/log_history.h"

namespace tilewright::train {
namespace {

// Stages of TrainingPosition.
constexpr int kEvaluated = 1;  // the evaluation that is due at the step has been made
constexpr int kMomentsUnused = 2;
constexpr int kBestModelLoaded = 3;

nlohmann::json to_json(const checkpoint::TrainerState& state) {
  return {
      {"global_step", state.global_step},
      {"epoch", state.epoch},
      {"num_input_tokens_seen", state.num_input_tokens_seen},
      {"total_flos", state.total_flos},
      {"examples_consumed", state.examples_consumed},
      {"train_seconds", state.train_seconds},
      {"log_history", state.log_history},
      {"best_metric", state.best_metric ? nlohmann::json(*state.best_metric) : nlohmann::json()},
      {"best_global_step", state.best_global_step},
      {"best_model_checkpoint", state.best_model_checkpoint}};
}

checkpoint::TrainerState trainer_state_from(const nlohmann::json& json) {
  checkpoint::TrainerState state;
  json.at("global_step").get_to(state.global_step);
  json.at("epoch").get_to(state.epoch);
  json.at("num_input_tokens_seen").get_to(state.num_input_tokens_seen);
  json.at("total_flos").get_to(state.total_flos);
  json.at("examples_consumed").get_to(state.examples_consumed);
  json.at("train_seconds").get_to(state.train_seconds);
  state.log_history = json.at("log_history");
  if (!json.at("best_metric").is_null()) state.best_metric = json.at("best_metric").get<double>();
  json.at("best_global_step").get_to(state.best_global_step);
  json.at("best_model_checkpoint").get_to(state.best_model_checkpoint);
  return state;
}

// Whether the evaluation at the state's step precedes it. It is missing from a checkpoint that was
// written because the process had to stop.
bool has_evaluation_of_step(const checkpoint::TrainerState& state) {
  for (const nlohmann::json& entry : state.log_history) {
    if (entry.value("step", std::int64_t{0}) != state.global_step) continue;
    for (const auto& [name, value] : entry.items()) {
      if (training_report::evaluation_result(name)) return true;
    }
  }
  return false;
}

}  // namespace

void TrainingProgress::clear() { restart_from({}, 0); }

void TrainingProgress::resume_from(checkpoint::TrainerState state) {
  const std::int64_t evaluated_step = has_evaluation_of_step(state) ? state.global_step : 0;
  restart_from(std::move(state), evaluated_step);
}

void TrainingProgress::restart_from(checkpoint::TrainerState state, std::int64_t evaluated_step) {
  state_ = std::move(state);
  position_epoch_ = 0;
  loss_sum_ = 0;
  loss_count_ = 0;
  evaluated_step_ = evaluated_step;
  save_step_ = 0;
  moments_unused_ = best_model_loaded_ = false;
}

std::string TrainingProgress::encode() const {
  // MessagePack keeps the bits of a number, also of one that is not finite.
  std::string bytes;
  nlohmann::json::to_msgpack({{"trainer_state", to_json(state_)},
                              {"position_epoch", position_epoch_},
                              {"loss_sum", loss_sum_},
                              {"loss_count", loss_count_},
                              {"last_step", last_report_.step},
                              {"last_epoch", last_report_.epoch},
                              {"last_grad_norm", last_report_.grad_norm},
                              {"last_learning_rate", last_report_.learning_rate},
                              {"evaluated_step", evaluated_step_},
                              {"moments_unused", moments_unused_},
                              {"best_model_loaded", best_model_loaded_},
                              {"save_step", save_step_},
                              {"recoveries", counts_.recoveries},
                              {"steps_lost", counts_.steps_lost}},
                             bytes);
  return bytes;
}

void TrainingProgress::decode(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::from_msgpack(text);
    state_ = trainer_state_from(json.at("trainer_state"));
    json.at("position_epoch").get_to(position_epoch_);
    json.at("loss_sum").get_to(loss_sum_);
    json.at("loss_count").get_to(loss_count_);
    json.at("last_step").get_to(last_report_.step);
    json.at("last_epoch").get_to(last_report_.epoch);
    json.at("last_grad_norm").get_to(last_report_.grad_norm);
    json.at("last_learning_rate").get_to(last_report_.learning_rate);
    json.at("evaluated_step").get_to(evaluated_step_);
    json.at("moments_unused").get_to(moments_unused_);
    json.at("best_model_loaded").get_to(best_model_loaded_);
    json.at("save_step").get_to(save_step_);
    json.at("recoveries").get_to(counts_.recoveries);
    json.at("steps_lost").get_to(counts_.steps_lost);
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("a worker sent an invalid training state: {}", error.what()));
  }
}

void TrainingProgress::begin_epoch(std::uint64_t epoch) {
  epoch_ = epoch;
  if (position_epoch_ == 0) position_epoch_ = epoch;
  attempted_step_ = step();
  const Settings& s = job_.settings;
  state_.job_uid = job_.uid;
  state_.settings = job_.fingerprint;
  state_.max_steps = job_.schedule.total_steps;
  // As the Trainer counts them: with max_steps, the epochs that it begins.
  const std::int64_t per_epoch = job_.schedule.steps_per_epoch;
  state_.num_train_epochs = s.max_steps > 0 && per_epoch > 0
                                ? (s.max_steps + per_epoch - 1) / per_epoch
                                : static_cast<std::int64_t>(std::ceil(s.num_train_epochs));
  state_.train_batch_size = s.per_device_train_batch_size;
  state_.logging_steps = job_.schedule.logging_steps;
  state_.save_steps = job_.schedule.save_steps;
  state_.eval_steps = job_.schedule.eval_steps;
}

void TrainingProgress::add(const StepReport& report) {
  state_.global_step = report.step;
  state_.examples_consumed += report.examples;
  state_.num_input_tokens_seen += report.tokens;
  state_.total_flos += report.flops;
  state_.epoch = report.epoch;
  position_epoch_ = epoch_;
  attempted_step_ = report.step;
  last_report_ = report;
  loss_sum_ += report.loss;
  loss_count_ += 1;
  const Settings& s = job_.settings;
  const bool due =
      job_.schedule.is_due(s.logging_strategy, job_.schedule.logging_steps, report.step) ||
      report.step == report.total_steps || (report.step == 1 && s.logging_first_step);
  if (checkpoint_due()) save_step_ = report.step;
  if (due || checkpoint_due()) append_to_log_history();
}

bool TrainingProgress::evaluation_pending() const {
  const Settings& s = job_.settings;
  return state_.global_step > 0 && evaluated_step_ != state_.global_step &&
         job_.schedule.is_due(s.eval_strategy, job_.schedule.eval_steps, state_.global_step);
}

void TrainingProgress::add_evaluation(const EvaluationResult& evaluation) {
  const nlohmann::json entry = evaluation_entry(evaluation, state_);
  state_.log_history.push_back(entry);
  evaluated_step_ = state_.global_step;
  position_epoch_ = epoch_;
  const std::string& metric = job_.settings.metric_for_best_model;
  if (metric.empty()) return;
  if (!entry.contains(metric)) {
    std::string names;
    for (const auto& [name, unused] : entry.items()) {
      if (!name.starts_with(training_report::kEvaluationPrefix)) continue;
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Failure(
        ExitCode::kUsage,
        fmt::format("--metric_for_best_model: found {}, expected one of {}", metric, names));
  }
  const double value = entry.at(metric).get<double>();
  // A metric that is not a number is never the best.
  const double best = state_.best_metric.value_or(job_.settings.greater_is_better
                                                      ? -std::numeric_limits<double>::infinity()
                                                      : std::numeric_limits<double>::infinity());
  if (job_.settings.greater_is_better ? value > best : value < best) {
    state_.best_metric = value;
    state_.best_global_step = state_.global_step;
    const bool written = checkpoint_due() || best_checkpoint_due();
    state_.best_model_checkpoint = written ? (std::filesystem::path(job_.settings.output_dir) /
                                              checkpoint::checkpoint_name(state_.global_step))
                                                 .string()
                                           : "";
  }
}

void TrainingProgress::count_lost_steps() {
  counts_.steps_lost += std::max<std::int64_t>(0, attempted_step_ - step());
  attempted_step_ = step();  // if this epoch is broken too, they are not counted again
}

void TrainingProgress::count_recovery() {
  ++counts_.recoveries;
  count_lost_steps();
}

bool TrainingProgress::checkpoint_due() const {
  const Settings& s = job_.settings;
  const std::int64_t step = state_.global_step;
  // The Trainer saves after the last step, too.
  const bool last = s.save_strategy == "steps" && step == job_.schedule.total_steps;
  return step > 0 &&
         (last || job_.schedule.is_due(s.save_strategy, job_.schedule.save_steps, step));
}

bool TrainingProgress::best_checkpoint_due() const {
  return job_.settings.needs_best_model() && state_.global_step > 0 &&
         state_.best_global_step == state_.global_step;
}

bool TrainingProgress::checkpoint_follows() const {
  const Settings& s = job_.settings;
  if (s.needs_best_model()) return true;
  return job_.schedule.is_due_before_end(s.save_strategy, job_.schedule.save_steps,
                                         std::max<std::int64_t>(state_.global_step, 1));
}

checkpoint::TrainerState TrainingProgress::checkpoint_state(std::uint64_t membership_epoch) {
  append_to_log_history();
  state_.membership_epoch = static_cast<std::int64_t>(membership_epoch);
  checkpoint::TrainerState state = state_;
  state.train_seconds = train_seconds();
  return state;
}

void TrainingProgress::append_to_log_history() {
  if (loss_count_ == 0) return;
  state_.log_history.push_back({{"epoch", last_report_.epoch},
                                {"grad_norm", last_report_.grad_norm},
                                {"learning_rate", last_report_.learning_rate},
                                {"loss", loss_sum_ / static_cast<double>(loss_count_)},
                                {"step", last_report_.step}});
  loss_sum_ = 0;
  loss_count_ = 0;
}

elastic::TrainingPosition TrainingProgress::position() const {
  int stage = 0;
  if (best_model_loaded_) {
    stage = kBestModelLoaded;
  } else if (moments_unused_) {
    stage = kMomentsUnused;
  } else if (state_.global_step > 0 && evaluated_step_ == state_.global_step) {
    stage = kEvaluated;
  }
  return {state_.global_step, stage, position_epoch_};
}

double TrainingProgress::train_seconds() const {
  if (!training_since_) return state_.train_seconds;
  return state_.train_seconds + in_seconds(monotonic_now() - *training_since_);
}

void TrainingProgress::stop_clock() {
  state_.train_seconds = train_seconds();
  training_since_.reset();
}

}  // namespace tilewright::train
