// How far a training has come: counters, log history, best metric and clock. With the weights and
// AdamW's moments it is the state of a training (training_state.h). Apart from the clock, all
// workers have the same after each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "worker/checkpoint/trainer_state.h"
#include "worker/elastic/state_agreement.h"
#include "worker/train/evaluator.h"
#include "worker/train/job.h"
#include "worker/train/progress.h"

namespace tilewright::train {

// Figures of the whole training.
struct RecoveryCounts {
  std::int64_t recoveries = 0;  // losses after which the training continued from memory
  std::int64_t steps_lost = 0;  // computed again after a loss
};

class TrainingProgress {
 public:
  // `job` outlives the object.
  explicit TrainingProgress(const Job& job) : job_(job) {}

  // Before the first step.
  void clear();
  // At the step of a checkpoint.
  void resume_from(checkpoint::TrainerState state);
  // For another worker, as bytes. decode() throws Failure(kPeerLost) if they are not a progress.
  std::string encode() const;
  void decode(const std::string& text);
  // All workers of this membership epoch have this progress.
  void begin_epoch(std::uint64_t epoch);

  // The next step begins: if the membership epoch breaks before add(), the step is lost.
  void begin_step() { attempted_step_ = step() + 1; }
  // Adds a completed step to the counters and to the log history.
  void add(const StepReport& report);
  // Whether eval_strategy asks for an evaluation at the current step that has not been made.
  bool evaluation_pending() const;
  // Adds an evaluation at the current step to the log history, and keeps it as the best if
  // metric_for_best_model says so. Throws Failure(kUsage) if the evaluation lacks that metric.
  void add_evaluation(const EvaluationResult& evaluation);
  // After a loss: counts the steps that were begun and are not part of this progress, each once.
  void count_lost_steps();
  // The same if the training continues from memory, which is counted too.
  void count_recovery();

  // Whether save_strategy asks for a checkpoint at the current step; whether the training needs one
  // because of a new best evaluation; whether one can become due later.
  bool checkpoint_due() const;
  bool best_checkpoint_due() const;
  bool checkpoint_follows() const;
  // The last step at which save_strategy asked for a checkpoint; 0: none.
  std::int64_t save_step() const { return save_step_; }
  // What a checkpoint of the current step holds. It has the log history, but no losses since its
  // last entry: they become an entry now.
  checkpoint::TrainerState checkpoint_state(std::uint64_t membership_epoch);

  // The training needs no more steps and no more checkpoints, and takes the best model's weights.
  void begin_best_model() { moments_unused_ = true; }
  void set_best_model_loaded() { best_model_loaded_ = true; }
  // The moments may have other values.
  bool moments_unused() const { return moments_unused_; }
  // The weights are those of the best model.
  bool best_model_loaded() const { return best_model_loaded_; }

  const checkpoint::TrainerState& trainer_state() const { return state_; }
  std::int64_t step() const { return state_.global_step; }  // completed steps
  elastic::TrainingPosition position() const;
  const RecoveryCounts& recovery_counts() const { return counts_; }
  // The time in which the steps were trained, also by earlier processes of the job.
  double train_seconds() const;
  void start_clock() { training_since_ = monotonic_now(); }
  void stop_clock();

 private:
  void restart_from(checkpoint::TrainerState state, std::int64_t evaluated_step);
  void append_to_log_history();

  const Job& job_;
  checkpoint::TrainerState state_;
  std::uint64_t epoch_ = 0;           // the current membership epoch
  std::uint64_t position_epoch_ = 0;  // of position(); 0: read from storage, not yet in an epoch
  StepReport last_report_;
  double loss_sum_ = 0;  // since the last entry of the log history
  std::int64_t loss_count_ = 0;
  std::int64_t attempted_step_ = 0;  // completed or begun
  std::int64_t evaluated_step_ = 0;  // of the last evaluation; 0: none
  std::int64_t save_step_ = 0;
  bool moments_unused_ = false;
  bool best_model_loaded_ = false;
  RecoveryCounts counts_;
  std::optional<MonotonicTime> training_since_;  // set between start_clock() and stop_clock()
};

}  // namespace tilewright::train
