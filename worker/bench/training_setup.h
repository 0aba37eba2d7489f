// A model with random weights, its optimizer and their memory: what a step needs besides a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "worker/bench/workload.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {

// Steps before the timed ones.
inline constexpr int kWarmUpSteps = 2;

template <typename Activation>
class TrainingSetup {
 public:
  // Batches have the examples of random_batch(workload, ...). `shards`: the most of any batch.
  TrainingSetup(const Workload& workload, runtime::Isa isa, std::int64_t shards)
      : plain_ops_(kernels::make_ops<Activation>(isa, workload.backend)),
        plain_parameter_ops_(kernels::make_parameter_ops(isa)),
        ops_(plain_ops_),
        parameter_ops_(plain_parameter_ops_),
        pool_(pool_threads(workload.threads)),
        config_(model_config(workload)),
        model_(config_, context()),
        optimizer_(model_, context(), {}),
        touched_(config_.vocab_size) {
    for (const nn::Tensor& tensor : model_.layout().tensors) {
      float* const values = model_.parameters().data() + tensor.offset;
      nn::initialise_tensor(tensor, 1, 0.02f, values);
      if (!tensor.decays && tensor.name.ends_with(".weight")) {  // of layer norm
        std::fill_n(values, tensor.count, 1.0f);
      }
    }
    model_.pack_weights();
    const nn::Batch batch = random_batch(workload, shards);
    limits_ = batch.limits();
    shards_ = shards;
    set_global_words(batch.ids);
  }

  // The ids of the global batch of the next steps, if it has more examples than this process's.
  void set_global_words(std::span<const std::int32_t> ids) {
    touched_.clear();
    touched_.mark(ids);
    touched_.finish();
    const auto count = static_cast<std::size_t>(model_.gradient_count(touched_.R()));
    if (gradient_.size() < count) gradient_ = runtime::Buffer<float>(count);
    sink_.groups = {gradient_.data()};
  }

  // One training step: forward, backward, AdamW, with dropout.
  void step(const nn::Batch& batch) {
    compute(batch, {});
    update();
  }
  // Forward and backward. `on_gradient_ready`: as in nn::GradientSink.
  void compute(const nn::Batch& batch,
               std::function<void(std::int64_t begin, std::int64_t end)> on_gradient_ready) {
    if (!reserved_) model_.reserve(limits_, shards_);
    reserved_ = true;
    sink_.on_gradient_ready = std::move(on_gradient_ready);
    const nn::DropoutKey key{1, static_cast<std::uint32_t>(steps_)};
    model_.forward(batch, key, true);
    model_.backward(batch, key, 1.0f / static_cast<float>(batch.B()), touched_, sink_);
  }
  // Gradient norm and AdamW with the last gradient.
  void update() { optimizer_.step(++steps_, 3e-5f, gradient(), touched_); }

  // The kernels of the next steps. Both functions are cheap.
  void use(const kernels::Ops<Activation>& ops, const kernels::ParameterOps& parameter_ops) {
    ops_ = ops;
    parameter_ops_ = parameter_ops;
  }
  void use_plain_kernels() { use(plain_ops_, plain_parameter_ops_); }

  const kernels::Ops<Activation>& plain_ops() const { return plain_ops_; }
  const kernels::ParameterOps& plain_parameter_ops() const { return plain_parameter_ops_; }
  runtime::ThreadPool& pool() { return pool_; }
  const nn::EncoderConfig& config() const { return config_; }
  nn::Model<Activation>& model() { return model_; }
  nn::Optimizer<Activation>& optimizer() { return optimizer_; }
  std::span<float> gradient() const {
    return gradient_.span().first(static_cast<std::size_t>(model_.gradient_count(touched_.R())));
  }
  std::size_t packed_bytes() { return nn::Model<Activation>::packed_bytes(config_, context()); }

 private:
  nn::Context<Activation> context() { return {pool_, ops_, parameter_ops_}; }

  kernels::Ops<Activation> plain_ops_;
  kernels::ParameterOps plain_parameter_ops_;
  kernels::Ops<Activation> ops_;  // the model and the optimizer refer to these two
  kernels::ParameterOps parameter_ops_;
  runtime::ThreadPool pool_;
  nn::EncoderConfig config_;
  nn::Model<Activation> model_;
  nn::Optimizer<Activation> optimizer_;
  nn::TouchedRows touched_;
  nn::BatchLimits limits_;
  std::int64_t shards_ = 1;
  bool reserved_ = false;
  runtime::Buffer<float> gradient_;  // at least gradient()
  nn::GradientSink sink_;
  std::int64_t steps_ = 0;
};

}  // namespace tilewright::bench
