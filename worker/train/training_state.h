// The state of a training: the model's weights, AdamW's moments and the progress. It stays in
// memory over membership epochs. A worker without it gets it from the others, or, if no worker has
// it, from a checkpoint or the starting weights. TrainingOutput writes it to checkpoints and the
// final model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/background_copy.h"
#include "worker/collectives/mesh.h"
#include "worker/elastic/state_agreement.h"
#include "worker/nn/optimizer.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/training_output.h"
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
        faults_(faults),
        log_(log),
        progress_(job),
        output_(job, model.layout(),
                {model.parameters(), std::as_const(optimizer).exp_avg(),
                 std::as_const(optimizer).exp_avg_sq()},
                progress_, model.pool(), ops, faults, log) {}
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
  // With load_best_model_at_end: brings the weights of the best evaluation to all workers. Returns
  // its step. If its checkpoint is missing, warns and leaves the weights of the last step,
  // as Hugging Face's Trainer does. Collective.
  std::int64_t load_best_model(collectives::Mesh& mesh);
  TrainingOutput& output() { return output_; }
  const TrainingOutput& output() const { return output_; }
  TrainingProgress& progress() { return progress_; }
  const TrainingProgress& progress() const { return progress_; }

 private:
  std::optional<std::filesystem::path> best_checkpoint() const;
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
  Faults& faults_;
  Logger& log_;
  bool differences_logged_ = false;
  TrainingProgress progress_;
  TrainingOutput output_;
  bool complete_ = false;  // weights, moments and progress belong together
  std::optional<collectives::BackgroundCopy> transfer_;
  bool receives_ = false;  // in the transfer
  double share_ = 0;       // share of the transfer that may have been sent, 0 to 1
  TransferOptions transfer_options_;
};

}  // namespace tilewright::train
