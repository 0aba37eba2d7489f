// trainer_state.json: where a training stands. Fields are Hugging Face's where it has them; ours
// are under stateful_callbacks.tilewright, so that transformers' TrainerState still loads the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tilewright::checkpoint {

struct TrainerState {
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  double epoch = 0;  // passes over the data, with its fraction
  std::int64_t num_train_epochs = 0;
  std::int64_t train_batch_size = 0;
  std::int64_t logging_steps = 0;
  std::int64_t save_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  nlohmann::json log_history = nlohmann::json::array();  // objects: step, epoch, loss, ...

  std::string job_uid;
  // What must not change between a checkpoint and its resumption: seed, batch, sizes, learning
  // rate, files. Any JSON values; compared one by one.
  nlohmann::json settings = nlohmann::json::object();
  std::int64_t membership_epoch = 0;   // of the rendezvous, when it was written
  std::int64_t examples_consumed = 0;  // since the training's start: the data position
};

std::string trainer_state_json(const TrainerState& state);

// A Failure with kCheckpoint that names the file and the field.
TrainerState read_trainer_state(const std::filesystem::path& path);

// A Failure with kCheckpoint that names the first setting that differs from the file's.
void require_same_settings(const TrainerState& found, const nlohmann::json& expected,
                           const std::filesystem::path& path);

}  // namespace tilewright::checkpoint
