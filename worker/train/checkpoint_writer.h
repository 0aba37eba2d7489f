// Writes checkpoints while the training continues: the state is copied between two steps, and a
// background thread writes the copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/state_copy.h"
#include "worker/runtime/background_task.h"
#include "worker/train/faults.h"

namespace tilewright::train {

// The longest wait for one checkpoint. Shorter than kCollectiveTimeout, for which the other workers
// wait for rank 0.
inline constexpr std::chrono::minutes kCheckpointTimeout{5};
// The wait while no worker computes: at the beginning of a membership epoch.
inline constexpr std::chrono::seconds kEpochCheckpointTimeout{10};

struct CheckpointRequest {
  checkpoint::OutputWriter output;
  checkpoint::CheckpointContent content;
  int keep = 0;  // as prune()
  std::int64_t best_step = 0;
  Faults faults;
  MonotonicTime begin{};  // when the training stopped for it
};

struct CheckpointOutcome {
  std::int64_t step = 0;
  checkpoint::Writer writer;
  std::filesystem::path path;
  std::optional<Failure> failure;  // it was not written
  std::vector<std::filesystem::path> removed;
  std::optional<Failure> prune_failure;
  Duration stall{};  // how long the training stopped for it
  Duration total{};  // from the stop to the commit
};

class CheckpointWriter {
 public:
  // Reserves the memory for copies of `elements` parameters and both of their moments, and touches
  // it in the background. Throws Failure(kMemory).
  void reserve(std::size_t elements);
  // reserve() was called.
  bool has_copy() const { return copy_ != nullptr; }
  // Replaces the copy; no checkpoint is being written. Failure(kOutputUnavailable): its memory is
  // still being touched after kCheckpointTimeout.
  const checkpoint::StateCopy& copy(const checkpoint::StateVectors& from, runtime::ThreadPool& pool,
                                    const kernels::ParameterOps& ops);

  // Begins to write; no checkpoint is being written. The request's tensors belong to the copy.
  // Failure(kOutputUnavailable): the system refuses a thread.
  void start(CheckpointRequest request);
  // Writes on this thread.
  static CheckpointOutcome write(CheckpointRequest request);

  // The step whose checkpoint is being written.
  std::optional<std::int64_t> step() const {
    return outcome_ ? std::optional(step_) : std::nullopt;
  }
  // Waits for the end of the checkpoint, at most `timeout`, and at most kCheckpointTimeout over all
  // calls: storage that does not answer stops the training once. nullopt: it has not ended, or none
  // is being written.
  std::optional<CheckpointOutcome> wait(Duration timeout);

 private:
  runtime::BackgroundTask task_;  // writes or touches the copy
  // The task owns these two as well.
  std::shared_ptr<checkpoint::StateCopy> copy_;
  std::shared_ptr<CheckpointOutcome> outcome_;  // null: no checkpoint is being written
  std::int64_t step_ = 0;
  Duration stall_{};
  Duration waited_{};
};

}  // namespace tilewright::train
