// The loop that joins model, data, exchange and optimizer: one object a process, used in one
// membership epoch after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/reducer.h"
#include "worker/nn/optimizer.h"
#include "worker/train/data_order.h"
#include "worker/train/faults.h"
#include "worker/train/job.h"
#include "worker/train/memory_need.h"
#include "worker/train/progress.h"

namespace tilewright::train {

// How long the workers may differ in speed at a collective operation; a dead peer is noticed by its
// closed connection long before.
inline constexpr std::chrono::minutes kPatience{10};

struct EvaluationResult {
  tasks::Metrics metrics;
  double loss = 0;
  double seconds = 0;
  std::size_t examples = 0;
};

// What the trainer tells while it runs; all may be empty.
struct TrainerHooks {
  std::function<void(const StepReport&, const Rates&)> on_step;  // after each step
  std::function<void(const std::string& phase)> on_phase;
  // True: leave (a membership change, a signal). Asked once a step; when any worker's says so, all
  // leave after that step.
  std::function<bool()> should_leave;
};

enum class Outcome { kComplete, kLeft };

// What does not depend on the type of activations.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Before all else in an epoch: makes room for what a worker holds at once in this world, which
  // may be larger than max_workers said. Throws Failure(kMemory), Failure(kUsage) where exactness
  // has no shard for each worker.
  virtual void begin_epoch(const collectives::Mesh& mesh) = 0;
  // Brings all workers of the mesh to one state: rank 0's newest valid checkpoint (or the one named
  // by resume_from_checkpoint), else the starting weights. Collective.
  virtual void restore(collectives::Mesh& mesh, bool resume) = 0;
  // Trains to the last step, writing checkpoints on the way. Collective. Throws Failure(kPeerLost).
  virtual Outcome train(collectives::Mesh& mesh, const TrainerHooks& hooks) = 0;
  // Collective; every rank gets the result.
  virtual EvaluationResult evaluate(collectives::Mesh& mesh) = 0;
  // Rank 0: the model in Hugging Face's layout with these further files; the digest of its weights.
  virtual std::string write_model(std::map<std::string, std::string> results) = 0;
  // Rank 0: a checkpoint of the present step.
  virtual void write_checkpoint(std::uint64_t membership_epoch) = 0;

  virtual std::int64_t step() const = 0;
  virtual std::int64_t last_checkpoint_step() const = 0;
  virtual const checkpoint::TrainerState& state() const = 0;
  virtual const MemoryNeed& memory_need() const = 0;
  virtual double train_seconds() const = 0;  // in train(), over all epochs of membership
  virtual std::vector<std::pair<std::string, std::string>> kernel_names() const = 0;
};

// `pool` and `faults` outlive the trainer. Makes room for model and passes at once: throws
// Failure(kMemory) with an estimate when the machine cannot hold them, Failure(kUnsupported) where
// the backend cannot compute what the settings ask for on `isa`.
std::unique_ptr<Trainer> make_trainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool,
                                      Faults& faults, Logger& log);

}  // namespace tilewright::train
