#include "worker/train/step.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "worker/collectives/buckets.h"
#include "worker/collectives/tree_accumulator.h"
#include "worker/nn/flops.h"
#include "worker/train/batching.h"
#include "worker/train/collective_limits.h"

namespace tilewright::train {
namespace {

// Elements of the gradient that a thread rounds and adds to its sibling at once.
constexpr std::int64_t kFinishGrain = 1 << 16;

constexpr std::size_t kPageFloats = 4096 / sizeof(float);

DataOrderOptions order_options(const Job& job) {
  const auto examples = static_cast<std::int64_t>(job.train_data.size());
  DataOrderOptions options{
      .examples = examples,
      .examples_per_epoch = examples_per_epoch(job.settings, examples, job.settings.global_batch),
      .global_batch = job.settings.global_batch,
      .seed = static_cast<std::uint64_t>(job.settings.data_seed),
      .lengths = {}};
  if (job.settings.group_by_length) {
    for (std::size_t i = 0; i < job.train_data.size(); ++i) {
      options.lengths.push_back(static_cast<std::int32_t>(job.train_data.length(i)));
    }
  }
  return options;
}

}  // namespace

Failure diverged(const StepReport& report, std::string_view what) {
  return {ExitCode::kDiverged,
          fmt::format("step {}: {} at learning rate {:.6g}, expected a finite number; train with a "
                      "lower --learning_rate or --max_grad_norm",
                      report.step, what, report.learning_rate)};
}

template <typename Activation>
class TrainingStep<Activation>::BucketStarter {
 public:
  BucketStarter(collectives::Reducer& reducer, std::span<const Range> buckets)
      : reducer_(reducer), buckets_(buckets) {}

  void begin_step(const collectives::GradientParts& parts) { reducer_.begin_step(parts, buckets_); }
  // Elements [0, end) of the gradient are final. The last bucket is left to finish().
  void start_up_to(std::int64_t end) {
    while (started_ + 1 < buckets_.size() && buckets_[started_].end <= end) {
      reducer_.start(static_cast<int>(started_++));
    }
  }
  void start_all() {
    while (started_ < buckets_.size()) reducer_.start(static_cast<int>(started_++));
  }
  // All elements are final; returns when they are summed.
  void finish() { reducer_.finish(collective_deadline()); }

 private:
  collectives::Reducer& reducer_;
  std::span<const Range> buckets_;
  std::size_t started_ = 0;
};

template <typename Activation>
TrainingStep<Activation>::TrainingStep(const Job& job, nn::Model<Activation>& model,
                                       nn::Optimizer<Activation>& optimizer,
                                       runtime::ThreadPool& pool, Faults& faults,
                                       const Clock& clock, const MemoryPlan& plan)
    : job_(job),
      model_(model),
      optimizer_(optimizer),
      pool_(pool),
      faults_(faults),
      clock_(clock),
      order_(order_options(job)),
      touched_(job.model.encoder.vocab_size),
      elements_(static_cast<std::size_t>(plan.gradient_elements)),
      stride_((elements_ + kPageFloats - 1) / kPageFloats * kPageFloats),
      buffers_(static_cast<std::size_t>(plan.gradient_buffers)) {
  allocate_private();
}

template <typename Activation>
void TrainingStep<Activation>::allocate_private() {
  while (private_.size() < buffers_) private_.emplace_back(elements_);
}

template <typename Activation>
void TrainingStep<Activation>::place_gradients(collectives::Mesh& mesh, std::size_t needed) {
  TW_CHECK(needed <= buffers_, "{} gradient buffers of {}", needed, buffers_);
  shared_.reset();
  shared_ = collectives::GradientMemory::share(mesh, needed * stride_, collective_deadline());
  if (shared_) {
    private_.clear();
    runtime::touch_pages(std::as_writable_bytes(shared_->own()), pool_);
  } else {
    allocate_private();
  }
}

template <typename Activation>
std::vector<std::span<std::byte>> TrainingStep<Activation>::memory() const {
  std::vector<std::span<std::byte>> memory;
  for (const auto& gradient : private_) memory.push_back(gradient.bytes());
  return memory;
}

template <typename Activation>
StepReport TrainingStep<Activation>::begin_report(std::int64_t step,
                                                  std::span<const std::int32_t> examples) {
  StepReport report;
  report.step = step + 1;
  report.total_steps = job_.schedule.total_steps;
  report.epoch = job_.schedule.epoch_after(report.step);
  report.examples = static_cast<std::int64_t>(examples.size());
  report.learning_rate = job_.schedule.learning_rate(step);
  for (const std::int32_t example : examples) {
    const std::size_t length = job_.train_data.length(static_cast<std::size_t>(example));
    report.tokens += static_cast<std::int64_t>(length);
    report.flops += 3 * nn::example_flops(job_.model.encoder, length);
  }
  return report;
}

template <typename Activation>
void TrainingStep<Activation>::find_touched_rows(std::span<const std::int32_t> examples) {
  touched_.clear();
  for (const std::int32_t example : examples) {
    touched_.mark(job_.train_data.ids_of(static_cast<std::size_t>(example)));
  }
  if (pads_training(job_)) touched_.mark(std::span(&job_.padding.id, 1));
  touched_.finish();
}

template <typename Activation>
void TrainingStep<Activation>::fill_batch(std::span<const std::int32_t> examples,
                                          const std::vector<Group>& groups) {
  batch_.clear();
  for (const Group& group : groups) {
    batch_.open_group(group.subtree.begin);
    for (const Range& shard : group.shards) {
      for (std::int64_t index = shard.begin; index < shard.end; ++index) {
        const auto example = static_cast<std::size_t>(examples[static_cast<std::size_t>(index)]);
        nn::Padding padding = job_.padding;
        padding.length = rows_[static_cast<std::size_t>(index)];
        batch_.add(job_.train_data.ids_of(example), job_.train_data.first_segment_of(example),
                   training_target(job_, example), static_cast<std::int32_t>(index), padding);
        local_tokens_ += batch_.lengths.back();
      }
      batch_.close_shard();
    }
  }
}

template <typename Activation>
void TrainingStep<Activation>::forward_and_backward(std::span<const std::int32_t> examples,
                                                    const std::vector<Group>& groups,
                                                    const nn::DropoutKey& key,
                                                    const nn::GradientSink& sink, bool last) {
  const MonotonicTime begin = clock_.now();
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.shards.size(); ++i) faults_.hit("step.shard");
  }
  fill_batch(examples, groups);
  model_.forward(batch_, key, true);
  model_.backward(batch_, key, 1.0f / static_cast<float>(examples.size()), touched_, sink);
  compute_seconds_ += in_seconds(clock_.now() - begin);
  write_tail(sink, last);
}

template <typename Activation>
void TrainingStep<Activation>::write_tail(const nn::GradientSink& sink, bool last) {
  for (float* gradient : sink.groups) {
    std::fill(gradient + tail_.begin, gradient + tail_.end(), 0.0f);
  }
  float* const own = sink.groups.front();
  if (last && stop_requested_) {
    const StopRequest request = stop_requested_();
    if (request != StopRequest::kNone) own[tail_.stop_requests()] = 1;
    if (request == StopRequest::kLeave) own[tail_.leaving()] = 1;
  }
  // What is sent now arrives before the end of the step.
  if (last && transfer_ != nullptr && transfer_->complete()) own[tail_.senders_done()] = 1;
  if (last && job_.settings.rebalance_shards) {
    own[tail_.compute_seconds(rank_)] = static_cast<float>(compute_seconds_);
  }
  sink.ready(tail_.begin, tail_.end());
}

template <typename Activation>
void TrainingStep<Activation>::begin_costs(std::span<const std::int32_t> examples,
                                           std::span<const Range> split) {
  compute_seconds_ = 0;
  costs_.assign(split.size(), {});
  rows_ = training_rows(job_, examples);
  for (int rank = 0; rank < static_cast<int>(split.size()); ++rank) {
    const Range own =
        examples_of_rank(job_.settings, split, rank, static_cast<std::int64_t>(rows_.size()));
    double& flops = costs_[static_cast<std::size_t>(rank)].flops;
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const std::int64_t rows = rows_[static_cast<std::size_t>(i)];
      flops += 3 * nn::example_flops(job_.model.encoder, static_cast<std::size_t>(rows));
    }
  }
}

template <typename Activation>
const float* TrainingStep<Activation>::run_one_micro_batch(const MicroBatchPlan& plan,
                                                           std::span<const std::int32_t> examples,
                                                           const nn::DropoutKey& key,
                                                           BucketStarter& buckets) {
  const std::vector<Group>& groups = plan.micro_batches.front();
  collectives::GradientParts parts;
  parts.count = buckets_.back().end;
  parts.parts.reserve(groups.size());
  nn::GradientSink sink;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    parts.parts.push_back({groups[i].subtree, gradient(i)});
    sink.groups.push_back(gradient(i));
  }
  parts.sum = gradient(0);
  buckets.begin_step(parts);
  sink.on_gradient_ready = [&](std::int64_t, std::int64_t end) { buckets.start_up_to(end); };
  forward_and_backward(examples, groups, key, sink, true);
  return parts.sum;
}

template <typename Activation>
const float* TrainingStep<Activation>::run_micro_batches(const MicroBatchPlan& plan,
                                                         std::span<const std::int32_t> examples,
                                                         const nn::DropoutKey& key,
                                                         BucketStarter& buckets) {
  std::vector<float*> buffers(static_cast<std::size_t>(plan.gradients()));
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i] = gradient(i);
  collectives::TreeAccumulator accumulator(plan.subtrees(), buckets_.back().end, std::move(buffers),
                                           bf16_count_);
  accumulator.begin_step();
  const float* sum = nullptr;
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
    // Elements are final, and exchanged, only in the last micro-batch.
    const bool last = m + 1 == plan.micro_batches.size();
    nn::GradientSink sink;
    sink.groups = {accumulator.begin_micro_batch().data()};
    if (last) {
      const collectives::GradientParts& parts = accumulator.parts();
      sum = parts.sum;
      buckets.begin_step(parts);
    }
    sink.on_gradient_ready = [&](std::int64_t begin, std::int64_t end) {
      pool_.for_ranges(end - begin, kFinishGrain, [&](std::int64_t from, std::int64_t to) {
        accumulator.finish({begin + from, begin + to});
      });
      if (last) buckets.start_up_to(end);
    };
    forward_and_backward(examples, plan.micro_batches[m], key, sink, last);
    accumulator.end_micro_batch();
  }
  return sum;
}

template <typename Activation>
const float* TrainingStep<Activation>::run_without_shards(BucketStarter& buckets) {
  collectives::GradientParts parts;
  parts.count = buckets_.back().end;
  parts.bf16_count = bf16_count_;
  parts.sum = gradient(0);
  buckets.begin_step(parts);
  buckets.start_all();
  faults_.hit("state.transfer");
  transfer_->close_window(kLongestStep);
  optimizer_.moments_may_change();
  return parts.sum;
}

template <typename Activation>
void TrainingStep<Activation>::lay_out_gradient(std::span<const std::int32_t> examples, int world) {
  find_touched_rows(examples);
  tail_ = {model_.gradient_count(touched_.R()), world};
  const std::int64_t count = tail_.end();
  TW_CHECK(count <= static_cast<std::int64_t>(elements_), "{} elements in a gradient of {}", count,
           elements_);
  // The loss and what follows it need fp32.
  bf16_count_ = job_.settings.rounds_gradients() ? tail_.begin - 1 : 0;
  collectives::split_into_buckets(count, bf16_count_, buckets_);
}

template <typename Activation>
MicroBatchPlan TrainingStep<Activation>::plan_micro_batches(std::span<const Range> split,
                                                            std::int64_t examples) const {
  MicroBatchPlan plan = plan_step(job_.settings, split, rank_, examples);
  TW_CHECK((!plan.micro_batches.empty() || transfer_ != nullptr) &&
               plan.gradients() <= static_cast<int>(placed_gradients()),
           "rank {} of {}: {} micro-batches need {} gradient buffers, there are {}", rank_,
           tail_.world, plan.micro_batches.size(), plan.gradients(), placed_gradients());
  return plan;
}

template <typename Activation>
const float* TrainingStep<Activation>::compute_gradient(const MicroBatchPlan& plan,
                                                        std::span<const std::int32_t> examples,
                                                        std::int64_t step, BucketStarter& buckets) {
  const nn::DropoutKey key{static_cast<std::uint64_t>(job_.settings.seed),
                           static_cast<std::uint32_t>(step)};
  if (plan.micro_batches.empty()) return run_without_shards(buckets);
  if (plan.micro_batches.size() == 1 && bf16_count_ == 0) {
    return run_one_micro_batch(plan, examples, key, buckets);
  }
  return run_micro_batches(plan, examples, key, buckets);
}

template <typename Activation>
void TrainingStep<Activation>::finish_exchange(collectives::Reducer& reducer,
                                               BucketStarter& buckets, bool has_shards,
                                               StepReport& report) {
  buckets.finish();
  if (!has_shards) return;
  const auto [exchange, wait] = reducer.times();
  report.exchange_seconds = in_seconds(exchange);
  report.hidden_exchange_seconds = in_seconds(exchange - wait);
  if (transfer_ != nullptr) {
    faults_.hit("state.transfer");
    transfer_->close_window();
  }
}

template <typename Activation>
void TrainingStep<Activation>::read_loss(const float* sum, StepReport& report) const {
  report.loss = sum[tail_.begin - 1];
  if (!std::isfinite(report.loss)) {
    throw diverged(report, std::isnan(report.loss) ? "the loss is NaN" : "the loss is infinite");
  }
}

template <typename Activation>
void TrainingStep<Activation>::read_tail(const float* sum, StepReport& report) {
  report.stop_requested = sum[tail_.stop_requests()] > 0;
  report.leaving = static_cast<int>(sum[tail_.leaving()]);
  report.state_senders_done = static_cast<int>(sum[tail_.senders_done()]);
  for (int rank = 0; rank < tail_.world; ++rank) {
    costs_[static_cast<std::size_t>(rank)].seconds = sum[tail_.compute_seconds(rank)];
  }
}

template <typename Activation>
void TrainingStep<Activation>::update_weights(std::int64_t step, const float* sum,
                                              StepReport& report) {
  report.grad_norm =
      optimizer_.step(step + 1, static_cast<float>(report.learning_rate),
                      std::span(sum, static_cast<std::size_t>(tail_.begin)), touched_);
  if (!std::isfinite(report.grad_norm)) {
    throw diverged(report, "the gradient is not finite");
  }
}

template <typename Activation>
StepReport TrainingStep<Activation>::run(std::int64_t step, const collectives::Mesh& mesh,
                                         collectives::Reducer& reducer,
                                         std::span<const Range> split,
                                         const std::function<StopRequest()>& stop_requested,
                                         collectives::BackgroundCopy* transfer) {
  transfer_ = transfer;
  stop_requested_ = stop_requested;
  rank_ = mesh.rank();
  faults_.at_step(step);
  faults_.hit("step.begin");
  const std::span<const std::int32_t> examples = order_.batch(step);
  StepReport report = begin_report(step, examples);
  begin_costs(examples, split);
  lay_out_gradient(examples, mesh.world());
  const MicroBatchPlan plan = plan_micro_batches(split, report.examples);
  BucketStarter buckets(reducer, buckets_);
  const float* const sum = compute_gradient(plan, examples, step, buckets);
  faults_.hit("step.after_backward");
  finish_exchange(reducer, buckets, !plan.micro_batches.empty(), report);
  faults_.hit("step.after_exchange");
  read_loss(sum, report);
  read_tail(sum, report);
  update_weights(step, sum, report);
  faults_.hit("step.after_update");
  return report;
}

template class TrainingStep<float>;
template class TrainingStep<runtime::bf16>;

}  // namespace tilewright::train
