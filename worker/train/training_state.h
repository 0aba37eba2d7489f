// The state that a checkpoint holds: the model's weights, AdamW's moments and the trainer state. It
// is restored from the model or a checkpoint, and written to checkpoints and the final model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/mesh.h"
#include "worker/nn/optimizer.h"
#include "worker/train/checkpoint_retry.h"
#include "worker/train/evaluator.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/progress.h"

namespace tilewright::train {

// What rank 0 restores from.
struct RestoreFrom {
  bool resume = false;  // the output directory has this job's earlier output
  // The step of the job's latest checkpoint, as far as the coordinator knows; -1: none. Going back
  // behind it would lose progress in silence.
  std::int64_t required_step = -1;
};

template <typename Activation>
class TrainingState {
 public:
  // The references outlive the object.
  TrainingState(const Job& job, nn::Model<Activation>& model, nn::Optimizer<Activation>& optimizer,
                Faults& faults, Logger& log)
      : job_(job), model_(model), optimizer_(optimizer), faults_(faults), log_(log) {}

  // Brings all workers to the same state. Rank 0 reads its newest valid checkpoint if `from.resume`
  // is true, else the one named by resume_from_checkpoint, and sends it to the others. Without a
  // checkpoint every worker reads the starting weights. Throws Failure(kCheckpointMissing) on rank 0
  // if the job has progressed further than that. Collective.
  void restore(collectives::Mesh& mesh, const RestoreFrom& from);
  // Rank 0 only: where checkpoints and the model are written in this membership epoch.
  void set_output(checkpoint::OutputWriter output) { output_ = std::move(output); }

  // Adds a completed step to the counters and to the log history.
  void add(const StepReport& report);
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
    return checkpoint_due() || best_checkpoint_due() || retry_.due(now);
  }
  // Rank 0 only: writes a checkpoint of the current step and deletes checkpoints above
  // save_total_limit. If it cannot be written, warns, and the training goes on. Throws
  // Failure(kSuperseded).
  void save_checkpoint(std::uint64_t membership_epoch);
  // Rank 0 only: writes the model in Hugging Face's layout together with the files of `results`
  // (name -> content). Returns the SHA-256 of model.safetensors.
  std::string write_model(const std::map<std::string, std::string>& results);
  // Rank 0 only: writes only the files of `results`.
  void write_results(const std::map<std::string, std::string>& results);

  const checkpoint::TrainerState& trainer_state() const { return state_; }
  std::int64_t step() const { return state_.global_step; }  // completed steps
  // The step of the newest checkpoint that this process has written or resumed from; -1: none.
  std::int64_t last_checkpoint_step() const { return last_checkpoint_step_; }
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
};

}  // namespace tilewright::train
