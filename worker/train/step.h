// One optimizer step: forward and backward over this worker's part of the global batch, the
// exchange of the gradient with the other workers, and the AdamW update.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "worker/collectives/background_copy.h"
#include "worker/collectives/gradient_memory.h"
#include "worker/collectives/mesh.h"
#include "worker/collectives/reducer.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/thread_pool.h"
#include "worker/train/data_order.h"
#include "worker/train/faults.h"
#include "worker/train/gradient_tail.h"
#include "worker/train/job.h"
#include "worker/train/memory_plan.h"
#include "worker/train/micro_batches.h"
#include "worker/train/progress.h"
#include "worker/train/shard_balancer.h"

namespace tilewright::train {

// Failure(kDiverged); `what` says which number of the report's step is not finite: "the loss is
// NaN".
Failure diverged(const StepReport& report, std::string_view what);

template <typename Activation>
class TrainingStep {
 public:
  // The references outlive the object. `clock`: of the costs.
  TrainingStep(const Job& job, nn::Model<Activation>& model, nn::Optimizer<Activation>& optimizer,
               runtime::ThreadPool& pool, Faults& faults, const Clock& clock,
               const MemoryPlan& plan);

  // How many place_gradients() may allocate.
  std::size_t gradient_buffers() const { return buffers_; }
  std::size_t gradient_buffer_bytes() const { return elements_ * sizeof(float); }
  void reserve_gradients(std::size_t buffers) { buffers_ = std::max(buffers_, buffers); }
  // Allocates the buffers for steps on this mesh. If there are other ranks on this host, they are
  // `needed` buffers, with their pages, in memory that it shares with them until
  // release_shared_gradients(). Collective.
  void place_gradients(collectives::Mesh& mesh, std::size_t needed);
  void release_shared_gradients() { shared_.reset(); }
  // Null if the buffers are in private memory.
  const collectives::GradientMemory* shared_gradients() const { return shared_.get(); }
  std::size_t shared_bytes() const { return shared_ ? shared_->own().size_bytes() : 0; }

  // Runs step `step`, counted from 0. Collective. `split`: the shards of each rank, as in the
  // reducer. `stop_requested`, called at the end of backward, unless the rank has no shards: what
  // this worker asks for after the step; what the report says of that is the same on all workers.
  // `transfer`: of weights and moments to ranks without shards, with an open window, which ends
  // with the exchange; null: none. Throws Failure(kPeerLost) before anything of the step has
  // changed weights or moments, and Failure(kDiverged) if the loss or the norm of the gradient is
  // not finite. Both are sums over all workers, so all throw in the same step.
  StepReport run(std::int64_t step, const collectives::Mesh& mesh, collectives::Reducer& reducer,
                 std::span<const Range> split, const std::function<StopRequest()>& stop_requested,
                 collectives::BackgroundCopy* transfer = nullptr);

  // Of the last step, by rank; the same on all ranks.
  const std::vector<RankCost>& costs() const { return costs_; }
  // This worker's forward and backward passes in the last step.
  double compute_seconds() const { return compute_seconds_; }

  // Of the private gradient buffers.
  std::vector<std::span<std::byte>> memory() const;

  // Tokens of this worker's examples in all steps so far, without padding.
  std::int64_t local_tokens() const { return local_tokens_; }

 private:
  // Starts the exchange of gradient buckets in order, as backward completes them.
  class BucketStarter;

  void allocate_private();
  std::size_t placed_gradients() const {
    return shared_ ? shared_->own().size() / stride_ : private_.size();
  }
  float* gradient(std::size_t buffer) const {
    return shared_ ? shared_->own().data() + buffer * stride_ : private_[buffer].data();
  }
  StepReport begin_report(std::int64_t step, std::span<const std::int32_t> examples);
  void find_touched_rows(std::span<const std::int32_t> examples);
  // `examples`: this step's global batch, as rows of the data set.
  void fill_batch(std::span<const std::int32_t> examples, const std::vector<Group>& groups);
  // One micro-batch: its groups are the parts of the gradient. Returns the exchanged gradient.
  const float* run_one_micro_batch(const MicroBatchPlan& plan,
                                   std::span<const std::int32_t> examples,
                                   const nn::DropoutKey& key, BucketStarter& buckets);
  // Several micro-batches: gradients of sibling subtrees are added as micro-batches end.
  const float* run_micro_batches(const MicroBatchPlan& plan, std::span<const std::int32_t> examples,
                                 const nn::DropoutKey& key, BucketStarter& buckets);
  // A rank without shards only takes part in the exchange, and receives what the others send.
  const float* run_without_shards(BucketStarter& buckets);
  // `last`: this is the last micro-batch of the step.
  void forward_and_backward(std::span<const std::int32_t> examples,
                            const std::vector<Group>& groups, const nn::DropoutKey& key,
                            const nn::GradientSink& sink, bool last);
  // This rank's numbers behind the loss.
  void write_tail(const nn::GradientSink& sink, bool last);
  // The costs of the step, with their FLOPs.
  void begin_costs(std::span<const std::int32_t> examples, std::span<const Range> split);
  // The elements of the step's gradient, and the buckets in which it is exchanged.
  void lay_out_gradient(std::span<const std::int32_t> examples, int world);
  MicroBatchPlan plan_micro_batches(std::span<const Range> split, std::int64_t examples) const;
  // Starts the exchange. Returns the gradient, which is summed after finish_exchange().
  const float* compute_gradient(const MicroBatchPlan& plan, std::span<const std::int32_t> examples,
                                std::int64_t step, BucketStarter& buckets);
  void finish_exchange(collectives::Reducer& reducer, BucketStarter& buckets, bool has_shards,
                       StepReport& report);
  // What the gradient has behind its parameters.
  void read_loss(const float* sum, StepReport& report) const;
  void read_tail(const float* sum, StepReport& report);
  void update_weights(std::int64_t step, const float* sum, StepReport& report);

  const Job& job_;
  nn::Model<Activation>& model_;
  nn::Optimizer<Activation>& optimizer_;
  runtime::ThreadPool& pool_;
  Faults& faults_;
  const Clock& clock_;
  DataOrder order_;
  nn::TouchedRows touched_;
  nn::Batch batch_;
  std::vector<std::int64_t> rows_;  // of each example of the step's global batch, with padding
  // Elements of a gradient buffer, and from one to the next in shared memory.
  std::size_t elements_ = 0, stride_ = 0;
  std::size_t buffers_ = 0;
  std::unique_ptr<collectives::GradientMemory> shared_;  // the buffers; if null, they are private
  std::vector<runtime::Buffer<float>> private_;
  std::vector<Range> buckets_;
  std::int64_t bf16_count_ = 0;  // of GradientParts
  GradientTail tail_;            // of the step's gradient
  std::function<StopRequest()> stop_requested_;
  collectives::BackgroundCopy* transfer_ = nullptr;  // in this step
  int rank_ = 0;
  double compute_seconds_ = 0;
  std::vector<RankCost> costs_;
  std::int64_t local_tokens_ = 0;
};

}  // namespace tilewright::train
