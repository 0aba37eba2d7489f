// Checkpoints of a training: OUTPUT/checkpoint-STEP/ with model.safetensors, optimizer.safetensors
// (exp_avg.NAME, exp_avg_sq.NAME), trainer_state.json and checksums.json. Each is complete or
// absent, and every byte is verified before a training goes on from it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/parameters.h"
#include "worker/checkpoint/trainer_state.h"

namespace tilewright::checkpoint {

// The three sets hold the same names (those of BertForSequenceClassification) and shapes.
struct TrainingTensors {
  std::vector<TensorView> weights;     // fp32 masters
  std::vector<TensorView> exp_avg;     // AdamW's first moment
  std::vector<TensorView> exp_avg_sq;  // and second
};

struct CheckpointContent {
  TrainerState state;
  TrainingTensors tensors;
  std::map<std::string, std::string> extra_files;  // name -> content: config.json, tokenizer files
  std::function<void()> before_commit = {};  // called when all is written aside: a fault point
};

// Writes OUTPUT/checkpoint-<state.global_step>, replacing one of the same step; gives its path.
// The output folder must exist. Failures carry kOutput and leave nothing behind.
std::filesystem::path write_checkpoint(const std::filesystem::path& output_dir,
                                       const CheckpointContent& content);

// Verifies every file, then that settings (unless null) and tensors are those of this job, then
// fills the tensors in place. A Failure with kCheckpoint has changed no tensor.
TrainerState load_checkpoint(const std::filesystem::path& checkpoint,
                             const nlohmann::json& expected_settings, const TrainingTensors& into);

// The checkpoint of the highest step whose files are all there with their sizes.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& output_dir);

struct ValidCheckpoint {
  std::optional<std::filesystem::path> path;
  std::vector<std::string> warnings;  // a sentence for each newer one that was passed over
};

// The checkpoint of the highest step whose every byte verifies.
ValidCheckpoint latest_valid_checkpoint(const std::filesystem::path& output_dir);

// Keeps the `keep` newest complete checkpoints (0: all) and removes those older than them, oldest
// first; gives what it removed. Folders of such a name without our checksums.json stay.
std::vector<std::filesystem::path> prune(const std::filesystem::path& output_dir, int keep);

// All checkpoint-<step> folders that hold a checksums.json, highest step first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& output_dir);

}  // namespace tilewright::checkpoint
