// Reads and writes trainer_state.json, the progress of a training. Fields have Hugging Face's
// names; fields that Hugging Face does not have are under stateful_callbacks.tilewright, so that
// transformers' TrainerState loads the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tilewright::checkpoint {

struct TrainerState {
  std::int64_t global_step = 0;
  std::int64_t max_steps = 0;
  double epoch = 0;  // with fraction
  std::int64_t num_train_epochs = 0;
  std::int64_t train_batch_size = 0;
  std::int64_t logging_steps = 0;
  std::int64_t save_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  nlohmann::json log_history = nlohmann::json::array();  // objects: step, epoch, loss, ...
  // Of the evaluation that metric_for_best_model prefers; nullopt: none yet.
  std::optional<double> best_metric;
  std::int64_t best_global_step = 0;
  std::string best_model_checkpoint;  // its directory; empty: none was written

  std::string job_uid;
  // Settings that must be equal when the training resumes: seed, batch, sizes, learning rate,
  // files. Any JSON values; compared one by one.
  nlohmann::json settings = nlohmann::json::object();
  std::int64_t membership_epoch = 0;   // of the rendezvous at the time of the checkpoint
  std::int64_t examples_consumed = 0;  // since the start of the training: the data position
  double train_seconds = 0;            // in which these steps were trained
};

// The longest trainer_state.json: about 6 million entries of the log history.
inline constexpr std::uint64_t kMaxTrainerStateBytes = std::uint64_t{1} << 30;

std::string trainer_state_json(const TrainerState& state);

// The file is large, so its checksum is verified first (read_checkpoint_state()). Throws Failure
// with ExitCode::kCheckpoint; the message names the file and the field.
TrainerState read_trainer_state(const std::filesystem::path& path);

// Throws Failure with ExitCode::kCheckpoint if a setting differs from the file's; the message names
// the first one.
void require_same_settings(const TrainerState& found, const nlohmann::json& expected,
                           const std::filesystem::path& path);

}  // namespace tilewright::checkpoint
