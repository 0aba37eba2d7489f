// Writes, verifies, loads, lists and prunes checkpoints. OUTPUT/checkpoint-STEP/ contains
// model.safetensors, optimizer.safetensors (exp_avg.NAME, exp_avg_sq.NAME), trainer_state.json and
// checksums.json. A checkpoint is complete or absent, and every byte is verified before it is used.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/output_writer.h"
#include "worker/checkpoint/parameters.h"
#include "worker/checkpoint/trainer_state.h"

namespace tilewright::checkpoint {

inline constexpr const char* kStateFile = "trainer_state.json";

// The three lists have the same names (those of transformers) and shapes.
struct TrainingTensors {
  std::vector<TensorView> weights;     // fp32 masters
  std::vector<TensorView> exp_avg;     // AdamW's first moment
  std::vector<TensorView> exp_avg_sq;  // AdamW's second moment
};

struct CheckpointContent {
  TrainerState state;
  TrainingTensors tensors;
  std::map<std::string, std::string> extra_files;  // name -> content: config.json, tokenizer files
  std::function<void()> before_commit = {};  // called before the rename: a fault point for tests
};

// The name of the directory: "checkpoint-500".
std::string checkpoint_name(std::int64_t step);

// Writes OUTPUT/checkpoint-<state.global_step>, replacing one of the same step, and returns its
// path. Failures have output_error_code(), kSuperseded, or kOutput for a state of more than
// kMaxTrainerStateBytes, and leave no files.
std::filesystem::path write_checkpoint(const OutputWriter& output,
                                       const CheckpointContent& content);

// Reads the state of a checkpoint after a check of this file's checksum. Throws Failure with
// ExitCode::kCheckpoint; here and below, errors of the file system other than that a file is absent
// have output_error_code().
TrainerState read_checkpoint_state(const std::filesystem::path& checkpoint);

// Throws Failure with ExitCode::kCheckpoint if a file of the checkpoint is missing or its checksum
// is wrong.
void verify_checkpoint(const std::filesystem::path& checkpoint);

// Verifies every file, compares settings (unless `expected_settings` is null) and tensors with
// those of this job, then fills `into`. Throws Failure with ExitCode::kCheckpoint and then leaves
// the tensors unchanged.
TrainerState load_checkpoint(const std::filesystem::path& checkpoint,
                             const nlohmann::json& expected_settings, const TrainingTensors& into);

struct ValidCheckpoint {
  std::optional<std::filesystem::path> path;
  std::vector<std::string> warnings;  // one for each newer, corrupt checkpoint
};

// Returns the checkpoint with the highest step among those with correct checksums. A process of the
// job that is being stopped may still write checkpoints and remove older ones.
ValidCheckpoint latest_valid_checkpoint(const std::filesystem::path& output_dir);

// Keeps the `keep` newest complete checkpoints (0: all) and removes older ones, oldest first.
// `best_step`: the checkpoint of this step is kept too, and counts, but the newest is always kept.
// `last_step`: of the newest checkpoint. Those of later steps neither count nor are removed: the
// training could not resume from them. Returns the removed ones. Keeps directories without
// checksums.json, which another program wrote. The Failures of write_checkpoint().
std::vector<std::filesystem::path> prune(const OutputWriter& output, int keep,
                                         std::int64_t best_step = 0,
                                         std::int64_t last_step = INT64_MAX);

// Whether `path` is a checkpoint-<step> directory of `output_dir`. Failures have
// output_error_code().
bool is_checkpoint_of(const std::filesystem::path& path, const std::filesystem::path& output_dir);

// All checkpoint-<step> directories with a checksums.json, highest step first; none without the
// directory. Failures have output_error_code().
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& output_dir);

}  // namespace tilewright::checkpoint
