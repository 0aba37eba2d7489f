// What rank 0 writes to the output directory: checkpoints while the training continues, and the
// model at its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checkpoint/output_writer.h"
#include "worker/checkpoint/state_copy.h"
#include "worker/kernels/ops.h"
#include "worker/nn/parameters.h"
#include "worker/runtime/thread_pool.h"
#include "worker/train/checkpoint_retry.h"
#include "worker/train/checkpoint_writer.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/training_progress.h"

namespace tilewright::train {

class TrainingOutput {
 public:
  // The references and the memory of `state`, vectors of the layout, outlive the object. `pool` and
  // `ops` copy.
  TrainingOutput(const Job& job, const nn::ParameterLayout& layout,
                 const checkpoint::StateVectors& state, TrainingProgress& progress,
                 runtime::ThreadPool& pool, const kernels::ParameterOps& ops, Faults& faults,
                 Logger& log)
      : job_(job),
        layout_(layout),
        state_(state),
        progress_(progress),
        pool_(pool),
        ops_(ops),
        faults_(faults),
        log_(log) {}
  // Waits for a checkpoint that is being written.
  ~TrainingOutput() { finish_checkpoint(kCheckpointTimeout); }
  TrainingOutput(const TrainingOutput&) = delete;
  TrainingOutput& operator=(const TrainingOutput&) = delete;

  // Rank 0 only: where checkpoints and the model are written in this membership epoch.
  void set(checkpoint::OutputWriter output) {
    output_ = std::move(output);
    take_output_ = nullptr;
  }
  // Sets the output later: `take` is called before the next checkpoint or the model is written. A
  // checkpoint that is being written keeps the current right to write. Throws what
  // acquire_output_dir() throws.
  void set_later(std::function<checkpoint::OutputWriter()> take) { take_output_ = std::move(take); }
  // This process is not rank 0 in this membership epoch: rank 0 supersedes a checkpoint that is
  // being written, which is no failure.
  void give_up() {
    output_.reset();
    take_output_ = nullptr;
  }
  // Rank 0 only: release_empty_output_dir(), after a checkpoint that is being written. False also
  // if that fails.
  bool release_empty() noexcept;
  // Whether a checkpoint is being written and this process still has the right to write it.
  bool is_kept() const;

  // Rank 0 only, with a complete state: whether a checkpoint is to be written at the current step,
  // as save_strategy asks, because a failed one is to be tried again, or because an earlier rank 0
  // has not completed one.
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

  // The step of the newest checkpoint that this process has written, resumed from or heard of when
  // the membership epoch began; -1: none. Never one that is not committed.
  std::int64_t last_checkpoint_step() const { return last_checkpoint_step_; }
  void set_last_checkpoint_step(std::int64_t step) { last_checkpoint_step_ = step; }
  std::int64_t failed_checkpoints() const { return retry_.failures(); }
  // How long checkpoints have waited for the ones before.
  double checkpoint_wait_seconds() const { return in_seconds(checkpoint_wait_); }

 private:
  // The newest step whose checkpoint is written or being written.
  std::int64_t newest_checkpoint_step() const {
    return std::max(last_checkpoint_step_, writer_.step().value_or(-1));
  }
  // Copies the tensors if it runs in the background.
  CheckpointRequest make_request(std::uint64_t membership_epoch);
  void handle(const CheckpointOutcome& outcome);
  void handle_failure(std::int64_t step, const Failure& failure);
  const checkpoint::OutputWriter& output();

  const Job& job_;
  const nn::ParameterLayout& layout_;
  const checkpoint::StateVectors state_;
  TrainingProgress& progress_;
  runtime::ThreadPool& pool_;
  const kernels::ParameterOps& ops_;
  Faults& faults_;
  Logger& log_;
  std::optional<checkpoint::OutputWriter> output_;
  std::function<checkpoint::OutputWriter()> take_output_;  // of set_later()
  CheckpointRetry retry_;
  CheckpointWriter writer_;
  bool copy_considered_ = false;          // reserve_checkpoint_copy() has decided
  std::int64_t attempted_save_step_ = 0;  // the last at which this process began a checkpoint
  Duration checkpoint_wait_{};
  std::int64_t last_checkpoint_step_ = -1;
};

}  // namespace tilewright::train
