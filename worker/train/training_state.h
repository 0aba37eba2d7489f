// The state of a training: the model's weights, AdamW's moments and the trainer state. It stays in
// memory over membership epochs. A worker without it gets it from the others, or, if no worker has
// it, from a checkpoint or the starting weights. It is written to checkpoints and the final model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/mesh.h"
#include "worker/elastic/state_agreement.h"
#include "worker/nn/optimizer.h"
#include "worker/train/checkpoint_retry.h"
#include "worker/train/evaluator.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/progress.h"

namespace tilewright::train {

// What a training is restored from at the beginning of a membership epoch.
struct RestoreFrom {
  bool resume = false;  // the output directory has this job's earlier output
  // The step of the job's latest checkpoint, as far as the coordinator knows; -1: none. Going back
  // behind it would silently lose progress.
  std::int64_t required_step = -1;
  elastic::StateAgreement agreement = {};  // equal on all ranks
  bool after_loss = false;                 // this worker's last membership epoch was broken
};

// What restore() has done.
struct Restored {
  bool from_memory = false;
  std::int64_t bytes = 0;  // sent by others to each worker that had no state
};

// Figures of the whole training, kept by all workers.
struct RecoveryCounts {
  std::int64_t recoveries = 0;  // losses after which the training continued from memory
  std::int64_t steps_lost = 0;  // computed again after a loss
};

// A state outside of the buffers of model and optimizer.
struct SavedState {
  std::vector<float> parameters, exp_avg, exp_avg_sq;
  std::string progress;
};

template <typename Activation>
class TrainingState {
 public:
  // The references outlive the object.
  TrainingState(const Job& job, nn::Model<Activation>& model, nn::Optimizer<Activation>& optimizer,
                Faults& faults, Logger& log)
      : job_(job), model_(model), optimizer_(optimizer), faults_(faults), log_(log) {}

  // The position of the state in memory. Between steps it is complete; while it is received it
  // counts as none.
  elastic::TrainingPosition position() const;
  // Brings all workers to the same state. With a state in memory (`from.agreement`) those that have
  // the most advanced one send it to the others. Otherwise rank 0 reads its newest valid checkpoint
  // if `from.resume` is true, else the one named by resume_from_checkpoint, and sends it to the
  // others; without a checkpoint every worker reads the starting weights. Throws
  // Failure(kCheckpointMissing) on rank 0 if the job has progressed further than that, and
  // Failure(kPeerLost): then it can be called again in the next membership epoch. Collective.
  Restored restore(collectives::Mesh& mesh, const RestoreFrom& from);
  // Copies a complete state, and continues from a copy, of the same parameters.
  SavedState save() const;
  void load(const SavedState& saved);
  // Rank 0 only: where checkpoints and the model are written in this membership epoch.
  void set_output(checkpoint::OutputWriter output) { output_ = std::move(output); }

  // The next step begins: if the membership epoch breaks before add(), the step is lost.
  void begin_step() { attempted_step_ = state_.global_step + 1; }
  // Adds a completed step to the counters and to the log history.
  void add(const StepReport& report);
  // Whether eval_strategy asks for an evaluation at the current step that has not been made.
  bool evaluation_pending() const;
  // Adds an evaluation at the current step to the log history, and keeps it as the best if
  // metric_for_best_model says so. Throws Failure(kUsage) if the evaluation lacks that metric.
  void add_evaluation(const EvaluationResult& evaluation);
  // With load_best_model_at_end: brings the weights of the best evaluation to all workers. Returns
  // its step. Throws Failure(kCheckpointMissing) on rank 0 if its checkpoint was not written.
  // Collective.
  std::int64_t load_best_model(collectives::Mesh& mesh);
  // Whether save_strategy asks for a checkpoint at the current step; the same on all workers, apart
  // from that of a new best evaluation.
  bool checkpoint_due() const;
  // Rank 0 only: whether a checkpoint is to be written at the current step, as save_strategy asks,
  // or because a failed one is to be tried again.
  bool save_due(MonotonicTime now) const {
    return state_.global_step > last_checkpoint_step_ &&
           (checkpoint_due() || best_checkpoint_due() || retry_.due(now));
  }
  // Rank 0 only: writes a checkpoint of the current step and deletes checkpoints above
  // save_total_limit. If it cannot be written, warns, and the training continues. Throws
  // Failure(kSuperseded).
  void save_checkpoint(std::uint64_t membership_epoch);
  // Rank 0 only: writes the model in Hugging Face's layout together with the files of `results`
  // (name -> content). Returns the SHA-256 of model.safetensors.
  std::string write_model(const std::map<std::string, std::string>& results);
  // Rank 0 only: writes only the files of `results`.
  void write_results(const std::map<std::string, std::string>& results);

  const checkpoint::TrainerState& trainer_state() const { return state_; }
  std::int64_t step() const { return state_.global_step; }  // completed steps
  // The step of the newest checkpoint that this process has written, resumed from or heard of when
  // the membership epoch began; -1: none.
  std::int64_t last_checkpoint_step() const { return last_checkpoint_step_; }
  const RecoveryCounts& recovery_counts() const { return counts_; }
  double train_seconds() const { return train_seconds_; }
  void add_train_seconds(double seconds) { train_seconds_ += seconds; }
  std::int64_t failed_checkpoints() const { return retry_.failures(); }

 private:
  // At a new best evaluation, if the training needs its weights later.
  bool best_checkpoint_due() const;
  void write_checkpoint(std::uint64_t membership_epoch);
  void prune_checkpoints();
  void append_to_log_history();
  const checkpoint::OutputWriter& output() const;
  void load_initial_weights(bool log_differences);
  void log_weight_differences();
  // Rank 0 only. False: there is no checkpoint to resume from.
  bool load_checkpoint(const RestoreFrom& from);
  // Rank 0 only: loads a checkpoint that is newer than the state in memory. False: there is none, and
  // the state is unchanged.
  bool load_newer_checkpoint(const RestoreFrom& from);
  std::optional<std::filesystem::path> find_checkpoint(const RestoreFrom& from) const;
  // False: rank 0 has found no checkpoint to read, and there is a state in memory. Collective.
  bool restore_from_storage(collectives::Mesh& mesh, const RestoreFrom& from);
  std::int64_t restore_from_memory(collectives::Mesh& mesh, const RestoreFrom& from);
  // All of the state but weights and moments, as bytes.
  std::string progress() const;
  // Throws Failure(kPeerLost) if the bytes are not a progress.
  void set_progress(const std::string& text);
  void count_lost_steps(const RestoreFrom& from);
  void describe_job();
  std::vector<checkpoint::TensorView> views(float* base) const;
  checkpoint::TrainingTensors tensors() const;

  const Job& job_;
  nn::Model<Activation>& model_;
  nn::Optimizer<Activation>& optimizer_;
  Faults& faults_;
  Logger& log_;
  std::optional<checkpoint::OutputWriter> output_;
  CheckpointRetry retry_;
  bool differences_logged_ = false;
  checkpoint::TrainerState state_;
  StepReport last_report_;
  double loss_sum_ = 0;  // since the last entry of the log history
  std::int64_t loss_count_ = 0;
  std::int64_t last_checkpoint_step_ = -1;
  bool complete_ = false;            // weights, moments and trainer state belong together
  std::int64_t attempted_step_ = 0;  // completed or begun
  std::int64_t evaluated_step_ = 0;  // of the last evaluation; 0: none
  bool best_model_loaded_ = false;   // the weights are those of the best model
  RecoveryCounts counts_;
  double train_seconds_ = 0;
};

}  // namespace tilewright::train
