// The trainer of one process: it holds the model, the optimizer and the buffers, and restores,
// trains, evaluates and writes the model. A process has one Trainer for all its membership epochs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/checkpoint/output_writer.h"
#include "worker/checkpoint/trainer_state.h"
#include "worker/collectives/mesh.h"
#include "worker/train/evaluator.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/memory_estimate.h"
#include "worker/train/progress.h"
#include "worker/train/shard_balancer.h"
#include "worker/train/training_state.h"

namespace tilewright::train {

// Each may be empty.
struct TrainerHooks {
  std::function<void(const StepReport&, const Rates&)> on_step;  // called after each step
  // Called once per step, at the end of backward. A worker without a state calls it before the
  // step.
  std::function<StopRequest()> stop_requested;
  // Called before the first step and whenever a rank has become slow or has recovered, or shards
  // have moved.
  std::function<void(const RankSpeeds&)> on_speeds;
  // Called when the workers that restore() has left without a state have it; see Restored.
  std::function<void()> on_state_sent;
  // Called before each evaluation that eval_strategy asks for.
  std::function<void()> before_evaluation;
  // Called before each batch of an evaluation that eval_strategy asks for. May throw a Failure,
  // which train() passes on.
  std::function<void()> before_evaluation_batch;
  // Called after each evaluation that eval_strategy asks for.
  std::function<void(const EvaluationResult&)> on_evaluation;
};

enum class Outcome { kComplete, kStopped };

// The interface hides the type of activations, float or bf16.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Gives the buffers their pages now, not in the transfer of the state and the first step, when
  // all workers wait for it. See touch_buffers().
  virtual void touch_memory() = 0;
  // Call it first in each membership epoch. Allocates the gradient buffers that this world size
  // needs in addition to those for max_workers. Throws Failure(kMemory), and Failure(kUsage) if
  // exact mode has fewer virtual shards than processes.
  virtual void begin_epoch(const collectives::Mesh& mesh) = 0;
  // Call it before the mesh is destroyed. May be called several times.
  virtual void end_epoch() = 0;
  // Whether the ranks that have the state can train while the others get it. Then restore() uses
  // Mesh::background(), if there is one. Collective.
  virtual bool trains_without_receivers(collectives::Mesh& mesh,
                                        const elastic::StateAgreement& agreement) const = 0;
  // See TrainingState. restore() is collective.
  virtual elastic::TrainingPosition position() const = 0;
  virtual bool can_save() const = 0;
  virtual Restored restore(collectives::Mesh& mesh, const RestoreFrom& from) = 0;
  virtual SavedState save_state() const = 0;
  virtual void load_state(const SavedState& saved) = 0;
  // Trains to the last step, evaluates and writes checkpoints when they are due. Collective. Throws
  // Failure(kPeerLost): the state is that after the last completed step, from which restore()
  // continues. Throws Failure(kDiverged) on all workers if the loss or the gradient is not finite,
  // or the weights before an evaluation or a checkpoint; then the state is not complete. Weights
  // that are not finite are never written.
  virtual Outcome train(collectives::Mesh& mesh, const TrainerHooks& hooks) = 0;
  // See TrainingState. Collective.
  virtual std::int64_t load_best_model(collectives::Mesh& mesh) = 0;
  // Collective; every rank gets the result. Throws Failure(kPeerLost), and what `before_batch`,
  // which may be empty, throws.
  virtual EvaluationResult evaluate(collectives::Mesh& mesh, const EvaluationSet& set,
                                    const std::function<void()>& before_batch) = 0;
  // Rank 0 only; see TrainingState.
  virtual void set_output(checkpoint::OutputWriter output) = 0;
  virtual void set_output_later(std::function<checkpoint::OutputWriter()> take) = 0;
  virtual bool keeps_output() const = 0;
  virtual bool release_empty_output() = 0;
  virtual std::string write_model(const std::map<std::string, std::string>& results) = 0;
  // Throws Failure(kDiverged) too, if a weight is not finite.
  virtual void save_checkpoint(std::uint64_t membership_epoch) = 0;
  // See TrainingState; without effect on other ranks.
  virtual void finish_checkpoint(Duration timeout) = 0;
  virtual void finish_checkpoint_of_epoch() = 0;

  virtual std::int64_t step() const = 0;
  virtual std::int64_t last_checkpoint_step() const = 0;  // see TrainingState
  virtual std::int64_t failed_checkpoints() const = 0;
  virtual double checkpoint_wait_seconds() const = 0;
  virtual const checkpoint::TrainerState& state() const = 0;
  virtual const MemoryEstimate& memory_estimate() const = 0;
  virtual MemoryDemand memory_demand() const = 0;
  virtual const RecoveryCounts& recovery_counts() const = 0;
  virtual double train_seconds() const = 0;    // of all steps, see TrainingState
  virtual double compute_seconds() const = 0;  // of this process in the last step; see TrainingStep
  // Group of operations -> names of its kernels.
  virtual std::vector<std::pair<std::string, std::string>> kernel_names() const = 0;
};

// `job`, `pool`, `faults`, `log` and `clock` outlive the trainer. Allocates all buffers: throws
// Failure(kMemory) with an estimate if the machine has too little memory, Failure(kUnsupported) if
// the GEMM backend does not support the settings on `isa`. `clock` measures how fast this worker
// computes.
std::unique_ptr<Trainer> make_trainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool,
                                      Faults& faults, Logger& log,
                                      const Clock& clock = system_clock());

}  // namespace tilewright::train
