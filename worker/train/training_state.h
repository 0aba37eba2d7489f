// The state of a training: the model's weights, AdamW's moments and the progress. It stays in
// memory over membership epochs. A worker without it gets it from the others, or, if no worker has
// it, from a checkpoint or the starting weights. It is written to checkpoints and the final model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/background_copy.h"
#include "worker/collectives/mesh.h"
#include "worker/elastic/state_agreement.h"
#include "worker/nn/optimizer.h"
#include "worker/train/checkpoint_retry.h"
#include "worker/train/checkpoint_writer.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/training_progress.h"

namespace tilewright::train {

struct TransferOptions {
  // How long, at most, all workers wait for workers without a state. The rest of the state follows
  // during the steps.
  Duration stall = std::chrono::milliseconds(400);
  std::size_t piece_bytes = collectives::kCopyPieceBytes;
  double share_per_step = 1;  // the largest share of the state that is sent during one step
  // How long a new worker with a stop request waits for the rest of the state. With it, the worker
  // leaves at a step boundary; without it, in the middle of a step, which the others repeat. If a
  // worker that has the state leaves, the new workers get the state within this time or not at all.
  Duration leave_after = std::chrono::seconds(5);
};

// What a training is restored from at the beginning of a membership epoch.
struct RestoreFrom {
  bool resume = false;  // the output directory has this job's earlier output
  // The step of the latest checkpoint that the coordinator has recorded; -1: none. Resuming from an
  // earlier one would lose progress without an error.
  std::int64_t required_step = -1;
  elastic::StateAgreement agreement = {};  // equal on all ranks
  bool after_loss = false;                 // this worker's last membership epoch was broken
  // Whether the rest of a transfer may be left to the steps; equal on all ranks.
  bool in_background = false;
  TransferOptions transfer = {};  // with in_background
  // Calls a function that reads the output directory, perhaps again after an error that may pass.
  std::function<void(const std::function<void()>&)> retry = [](const auto& read) { read(); };
};

// What restore() has done.
struct Restored {
  bool from_memory = false;
  std::int64_t bytes = 0;      // that each worker without a state gets from others
  bool in_background = false;  // a part of them follows: see TrainingState::transfer()
};

// A state outside of the buffers of model and optimizer.
struct SavedState {
  std::vector<float> parameters, exp_avg, exp_avg_sq;
  std::string progress;  // TrainingProgress::encode()
};

template <typename Activation>
class TrainingState {
 public:
  // The references outlive the object.
  TrainingState(const Job& job, nn::Model<Activation>& model, nn::Optimizer<Activation>& optimizer,
                const kernels::ParameterOps& ops, Faults& faults, Logger& log)
      : job_(job),
        model_(model),
        optimizer_(optimizer),
        ops_(ops),
        faults_(faults),
        log_(log),
        progress_(job) {}
  // Waits for a checkpoint that is being written.
  ~TrainingState() { finish_checkpoint(kCheckpointTimeout); }
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  // The position of the state in memory. Between steps it is complete; while it is received it
  // counts as none.
  elastic::TrainingPosition position() const;
  // Whether a checkpoint can be written: weights and moments are those of the last step, and
  // load_best_model() has not begun to replace them.
  bool can_save() const { return complete_ && !progress_.moments_unused(); }
  // The weights are not those of the last step any more: the state is not complete until restore().
  void invalidate() { complete_ = false; }
  // Brings all workers to the same state. With a state in memory (`from.agreement`) those that have
  // the most advanced one send it to the others. Otherwise rank 0 reads its newest valid checkpoint
  // if `from.resume` is true, else the one named by resume_from_checkpoint, and sends it to the
  // others; without a checkpoint every worker reads the starting weights. Throws
  // Failure(kCheckpointMissing) on rank 0 if the job has progressed further than that, and
  // Failure(kPeerLost): then it can be called again in the next membership epoch. Collective.
  Restored restore(collectives::Mesh& mesh, const RestoreFrom& from);
  // What restore() has left to the steps; null: nothing. Until finish_transfer() a receiver has no
  // state.
  collectives::BackgroundCopy* transfer() { return transfer_ ? &*transfer_ : nullptr; }
  bool receives() const { return transfer_ && receives_; }
  // Before a step, which closes the window before AdamW.
  void open_transfer_window();
  // After a step that has sent all of it.
  void finish_transfer();
  // After another step: sends the rest, for at most `limit`, if that is given. Whether all have the
  // state now; if not, the receivers have none. Collective.
  bool send_rest(collectives::Mesh& mesh, std::optional<Duration> limit);
  const TransferOptions& transfer_options() const { return transfer_options_; }
  // Before its mesh is destroyed: receivers have no state.
  void abandon_transfer() { transfer_.reset(); }
  // Copies a complete state, and continues from a copy, of the same parameters.
  SavedState save() const;
  void load(const SavedState& saved);
  // Rank 0 only: where checkpoints and the model are written in this membership epoch.
  void set_output(checkpoint::OutputWriter output) {
    output_ = std::move(output);
    take_output_ = nullptr;
  }
  // Sets the output later: `take` is called before the next checkpoint or the model is written. A
  // checkpoint that is being written keeps the current right to write. Throws what
  // acquire_output_dir() throws.
  void set_output_later(std::function<checkpoint::OutputWriter()> take) {
    take_output_ = std::move(take);
  }
  // This process is not rank 0 in this membership epoch: rank 0 supersedes a checkpoint that is
  // being written, which is no failure.
  void give_up_output() {
    output_.reset();
    take_output_ = nullptr;
  }
  // Rank 0 only: release_empty_output_dir(), after a checkpoint that is being written. False also
  // if that fails.
  bool release_empty_output() noexcept;
  // Whether a checkpoint is being written and this process still has the right to write it.
  bool keeps_output() const;

  // With load_best_model_at_end: brings the weights of the best evaluation to all workers. Returns
  // its step. If its checkpoint is missing, warns and leaves the weights of the last step,
  // as Hugging Face's Trainer does. Collective.
  std::int64_t load_best_model(collectives::Mesh& mesh);
  // Rank 0 only: whether a checkpoint is to be written at the current step, as save_strategy asks,
  // because a failed one is to be tried again, or because an earlier rank 0 has not completed one.
  bool save_due(MonotonicTime now) const;
  // Rank 0 only, after a step: if checkpoints will be due, reserves the memory from which they are
  // written in the background. If there is not enough, they are written between two steps. Returns
  // the bytes that are reserved.
  std::uint64_t reserve_checkpoint_copy();
  // Rank 0 only: writes a checkpoint of the current step in the background and deletes checkpoints
  // above save_total_limit. Waits for the one before, whose commit precedes; if that takes longer
  // than kCheckpointTimeout, this one fails. After a failure the training continues with a warning.
  // Throws Failure(kSuperseded).
  void start_checkpoint(std::uint64_t membership_epoch);
  // Like start_checkpoint(), then waits for the checkpoint, at most kCheckpointTimeout; a write
  // that takes longer is a warning.
  void save_checkpoint(std::uint64_t membership_epoch);
  // Takes note of a checkpoint that has been written meanwhile, or has failed. Throws
  // Failure(kSuperseded).
  void poll_checkpoint();
  // Waits for the checkpoint that is being written, at most `timeout`. Failures are warnings.
  void finish_checkpoint(Duration timeout) noexcept;
  // The same before the rank 0 of a new membership epoch takes the output over. After
  // kEpochCheckpointTimeout it writes the checkpoint again, unless it is that of the best model.
  void finish_checkpoint_of_epoch() noexcept;
  // Whether the checkpoint of the current step must be written before the next step, because
  // workers that continue without rank 0 could not write it any more: that of the best model.
  bool must_save_now() const { return progress_.best_checkpoint_due(); }
  // Rank 0 only: writes the model in Hugging Face's layout together with the files of `results`
  // (name -> content). Returns the SHA-256 of model.safetensors.
  std::string write_model(const std::map<std::string, std::string>& results);

  TrainingProgress& progress() { return progress_; }
  const TrainingProgress& progress() const { return progress_; }
  // The step of the newest checkpoint that this process has written, resumed from or heard of when
  // the membership epoch began; -1: none. Never one that is not committed.
  std::int64_t last_checkpoint_step() const { return last_checkpoint_step_; }
  std::int64_t failed_checkpoints() const { return retry_.failures(); }
  // How long checkpoints have waited for the ones before.
  double checkpoint_wait_seconds() const { return in_seconds(checkpoint_wait_); }

 private:
  std::optional<std::filesystem::path> best_checkpoint() const;
  // The newest step whose checkpoint is written or being written.
  std::int64_t newest_checkpoint_step() const {
    return std::max(last_checkpoint_step_, writer_.step().value_or(-1));
  }
  // Copies the tensors if it runs in the background.
  CheckpointRequest make_request(std::uint64_t membership_epoch);
  void handle(const CheckpointOutcome& outcome);
  void handle_failure(std::int64_t step, const Failure& failure);
  const checkpoint::OutputWriter& output();
  void load_initial_weights(bool log_differences);
  void log_weight_differences();
  // Rank 0 only. False: there is no checkpoint to resume from.
  bool load_checkpoint(const RestoreFrom& from);
  // Rank 0 only: loads a checkpoint that is newer than the state in memory. False: there is none,
  // and the state is unchanged.
  bool load_newer_checkpoint(const RestoreFrom& from);
  std::optional<std::filesystem::path> find_checkpoint(const RestoreFrom& from) const;
  // False: rank 0 has found no checkpoint to read, and there is a state in memory. Collective.
  bool restore_from_storage(collectives::Mesh& mesh, const RestoreFrom& from);
  void restore_from_memory(collectives::Mesh& mesh, const RestoreFrom& from, Restored& restored);
  // Between two steps. True: all ranks have the state.
  bool start_transfer(collectives::Mesh& mesh, const RestoreFrom& from, bool in_background);
  checkpoint::TrainingTensors tensors() const;

  const Job& job_;
  nn::Model<Activation>& model_;
  nn::Optimizer<Activation>& optimizer_;
  const kernels::ParameterOps& ops_;
  Faults& faults_;
  Logger& log_;
  std::optional<checkpoint::OutputWriter> output_;
  std::function<checkpoint::OutputWriter()> take_output_;  // of set_output_later()
  CheckpointRetry retry_;
  CheckpointWriter writer_;
  bool copy_considered_ = false;          // reserve_checkpoint_copy() has decided
  std::int64_t attempted_save_step_ = 0;  // the last at which this process began a checkpoint
  Duration checkpoint_wait_{};
  bool differences_logged_ = false;
  TrainingProgress progress_;
  std::int64_t last_checkpoint_step_ = -1;
  bool complete_ = false;  // weights, moments and progress belong together
  std::optional<collectives::BackgroundCopy> transfer_;
  bool receives_ = false;  // in the transfer
  double share_ = 0;       // share of the transfer that may have been sent, 0 to 1
  TransferOptions transfer_options_;
};

}  // namespace tilewright::train
