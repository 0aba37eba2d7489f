#include "worker/checkpoint/trainer_state.h"

#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {
namespace {

constexpr std::int64_t kMaxJsonInteger = std::int64_t{1} << 53;  // exact in a double

std::string value_of(const nlohmann::json& settings, const std::string& name) {
  return settings.contains(name) ? settings[name].dump() : "missing";
}

}  // namespace

std::string trainer_state_json(const TrainerState& state) {
  nlohmann::json json = {
      {"global_step", state.global_step},
      {"max_steps", state.max_steps},
      {"epoch", state.epoch},
      {"num_train_epochs", state.num_train_epochs},
      {"train_batch_size", state.train_batch_size},
      {"logging_steps", state.logging_steps},
      {"save_steps", state.save_steps},
      {"eval_steps", state.eval_steps},
      {"num_input_tokens_seen", state.num_input_tokens_seen},
      {"total_flos", state.total_flos},
      {"log_history", state.log_history},
      {"best_metric", nullptr},
      {"best_global_step", nullptr},
      {"best_model_checkpoint", nullptr},
      {"is_hyper_param_search", false},
      {"is_local_process_zero", true},
      {"is_world_process_zero", true},
      {"trial_name", nullptr},
      {"trial_params", nullptr},
  };
  if (state.best_metric) {
    json["best_metric"] = *state.best_metric;
    json["best_global_step"] = state.best_global_step;
  }
  if (!state.best_model_checkpoint.empty()) {
    json["best_model_checkpoint"] = state.best_model_checkpoint;
  }
  json["stateful_callbacks"]["tilewright"] = {
      {"job_uid", state.job_uid},
      {"settings", state.settings},
      {"membership_epoch", state.membership_epoch},
      {"examples_consumed", state.examples_consumed},
      {"train_seconds", state.train_seconds},
  };
  return json.dump(2) + "\n";
}

TrainerState read_trainer_state(const std::filesystem::path& path) {
  const JsonFields fields(path, ExitCode::kCheckpoint, kMaxTrainerStateBytes,
                          ExitCode::kOutputUnavailable);
  TrainerState state;
  state.global_step = fields.integer("global_step", 0, kMaxJsonInteger);
  state.max_steps = fields.integer("max_steps", 0, kMaxJsonInteger);
  state.epoch = fields.number("epoch", 0, 1e15);
  state.num_train_epochs = fields.integer("num_train_epochs", 0, kMaxJsonInteger, 0);
  state.train_batch_size = fields.integer("train_batch_size", 0, kMaxJsonInteger, 0);
  state.logging_steps = fields.integer("logging_steps", 0, kMaxJsonInteger, 0);
  state.save_steps = fields.integer("save_steps", 0, kMaxJsonInteger, 0);
  state.eval_steps = fields.integer("eval_steps", 0, kMaxJsonInteger, 0);
  state.num_input_tokens_seen = fields.integer("num_input_tokens_seen", 0, kMaxJsonInteger, 0);
  state.total_flos = fields.number("total_flos", 0, 1e300, 0);
  if (!fields.has("log_history") || !fields.json()["log_history"].is_array()) {
    fields.fail("log_history", "a list");
  }
  state.log_history = fields.json()["log_history"];
  if (fields.has("best_metric")) {
    state.best_metric = fields.number("best_metric", -1e300, 1e300);
    state.best_global_step = fields.integer("best_global_step", 0, kMaxJsonInteger);
  }
  if (fields.has("best_model_checkpoint")) {
    state.best_model_checkpoint = fields.string("best_model_checkpoint");
  }

  const JsonFields own = fields.object("stateful_callbacks").object("tilewright");
  state.job_uid = own.string("job_uid");
  state.settings = own.object("settings").json();
  state.membership_epoch = own.integer("membership_epoch", 0, kMaxJsonInteger);
  state.examples_consumed = own.integer("examples_consumed", 0, kMaxJsonInteger);
  state.train_seconds = own.number("train_seconds", 0, 1e15, 0);  // earlier versions had none
  return state;
}

void require_same_settings(const TrainerState& found, const nlohmann::json& expected,
                           const std::filesystem::path& path) {
  nlohmann::json names = found.settings;
  names.update(expected);
  for (const auto& [name, unused] : names.items()) {
    const std::string before = value_of(found.settings, name);
    const std::string now = value_of(expected, name);
    if (before == now) continue;
    throw Failure(ExitCode::kCheckpoint,
                  fmt::format("{}: found setting {} = {}, expected {} as in this job",
                              path.string(), name, before, now));
  }
}

}  // namespace tilewright::checkpoint
