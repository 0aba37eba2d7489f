// The trainer for one type of activations; see trainer.h.
#pragma once

#include <map>

#include "worker/collectives/tree_accumulator.h"
#include "worker/train/passes.h"
#include "worker/train/trainer.h"

namespace tilewright::train {

template <typename T>
class TypedTrainer final : public Trainer {
 public:
  TypedTrainer(const Job& job, runtime::Isa isa, runtime::ThreadPool& pool, Faults& faults,
               Logger& log);

  void begin_epoch(const collectives::Mesh& mesh) override;
  void restore(collectives::Mesh& mesh, bool resume) override;
  Outcome train(collectives::Mesh& mesh, const TrainerHooks& hooks) override;
  EvaluationResult evaluate(collectives::Mesh& mesh) override;
  std::string write_model(std::map<std::string, std::string> results) override;
  void write_checkpoint(std::uint64_t membership_epoch) override;

  std::int64_t step() const override { return state_.global_step; }
  std::int64_t last_checkpoint_step() const override { return last_checkpoint_step_; }
  const checkpoint::TrainerState& state() const override { return state_; }
  const MemoryNeed& memory_need() const override { return need_; }
  double train_seconds() const override { return train_seconds_; }
  std::vector<std::pair<std::string, std::string>> kernel_names() const override;

 private:
  struct Sizes {
    std::int64_t tokens = 0;    // of a pass, at most
    std::int64_t examples = 0;  // of a pass, at most
    std::int64_t seqlen = 0;
    std::int64_t gradient = 0;  // elements of a gradient, at most
    int gradients = 1;          // buffers of them
    bool evaluation = false;    // has the most tokens
  };
  static Sizes sizes_of(const Job& job);
  // Of a step of `examples`, a whole global batch or what is left of the data.
  static PassPlan plan_of(const Settings& settings, int rank, int world, std::int64_t examples);
  // Refused where it does not fit this process alone.
  static MemoryNeed checked_need(const Job& job, const nn::Context<T>& context, const Sizes& sizes);

  void load_starting_weights();
  std::vector<checkpoint::TensorView> views(float* base) const;
  // Groups of the pass, out of `examples`: this step's global batch, as rows of the data set.
  void fill_batch(std::span<const std::int32_t> examples, const std::vector<Group>& groups);
  // `leave`: this worker wants to stop after the step; report.leave tells whether any wants.
  StepReport run_step(collectives::Mesh& mesh, collectives::Reducer& reducer, bool leave);
  // Adds the step to the log history's window, and closes that when a line is due or asked for.
  void record(const StepReport& report, bool close_window);
  bool checkpoint_due() const;

  const Job& job_;
  Faults& faults_;
  Logger& log_;
  runtime::ThreadPool& pool_;
  kernels::Ops<T> ops_;
  kernels::ParameterOps parameter_ops_;
  nn::Context<T> context_;
  MemoryNeed need_;  // before whatever takes the memory
  nn::BertClassifier<T> model_;
  nn::Optimizer<T> optimizer_;
  std::optional<DataOrder> order_;
  nn::TouchedRows touched_;
  nn::Batch batch_;
  std::vector<runtime::Buffer<float>> gradients_;  // as many as any epoch so far has needed
  std::vector<Range> buckets_;
  int shards_ = 1;  // of a step's tree: virtual shards, or 1 a worker where exactness is off

  checkpoint::TrainerState state_;
  double loss_sum_ = 0;  // since the last line of the log history
  std::int64_t loss_count_ = 0;
  std::int64_t last_checkpoint_step_ = -1;
  double train_seconds_ = 0;
  std::int64_t own_tokens_ = 0;  // of the examples that went through train(), without padding
};

}  // namespace tilewright::train
