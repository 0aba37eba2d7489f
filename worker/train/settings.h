// What a training is told, from its flags, and what follows from that before any worker starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/contract/training_flags.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/cpu.h"
#include "worker/train/schedule.h"

namespace tilewright::train {

enum class SaveStrategy { kSteps, kEpoch, kNo };

struct Settings {
  std::string task_name;
  std::filesystem::path model_dir, data_dir, output_dir;
  bool do_train = true;
  bool do_eval = true;
  std::int64_t max_seq_length = 128;
  bool pad_to_max_length = false;
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  ScheduleSettings schedule;
  nn::AdamWSettings adamw;
  std::int64_t logging_steps = 10;
  bool logging_first_step = false;
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  std::int64_t save_steps = 500;
  int save_total_limit = 0;
  std::uint64_t seed = 42;
  std::uint64_t init_seed = 42;  // of weights that the model folder lacks
  bool bf16 = true;
  bool overwrite_output_dir = false;
  std::filesystem::path resume_from_checkpoint;
  std::int64_t max_train_samples = -1;
  std::int64_t max_eval_samples = -1;
  std::optional<float> hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout;
  bool exact = true;
  int threads = 0;
  bool onednn = false;

  // The global batch is frozen with the job: per-device batch x nominal workers x accumulation.
  std::int64_t global_batch = 0;
  std::int64_t virtual_shards = 0;
  std::int64_t nominal_workers = 1;
  std::int64_t max_workers = 1;
};

// `world`: processes at the start, taken where nominal_workers or max_workers are 0. A combination
// that cannot be is a Failure (kUsage).
Settings make_settings(const TrainingArguments& arguments, std::int64_t world);

// Holds oneDNN, where the settings name it, to `isa`; Failure (kUnsupported) where it has no
// kernels of the settings' type there.
void check_gemm_backend(const Settings& settings, runtime::Isa isa);

// What may not change between a checkpoint and its resumption, nor between workers.
nlohmann::json fingerprint(const Settings& settings);

}  // namespace tilewright::train
