// A model with random weights, its optimizer and their memory: what a step needs besides a batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/bench/workload.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {

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
    touched_.mark(batch.ids);
    touched_.finish();
    limits_ = batch.limits();
    shards_ = shards;
    gradient_ =
        runtime::Buffer<float>(static_cast<std::size_t>(model_.gradient_count(touched_.R())));
    sink_.groups = {gradient_.data()};
  }

  // One training step: forward, backward, AdamW, with dropout.
  void step(const nn::Batch& batch) {
    if (!reserved_) model_.reserve(limits_, shards_);
    reserved_ = true;
    const nn::DropoutKey key{1, static_cast<std::uint32_t>(steps_)};
    model_.forward(batch, key, true);
    model_.backward(batch, key, 1.0f / static_cast<float>(batch.B()), touched_, sink_);
    update();
  }
  // AdamW with the last gradient.
  void update() { optimizer_.step(++steps_, 3e-5f, gradient_.span(), touched_); }

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
  runtime::Buffer<float>& gradient() { return gradient_; }
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
  runtime::Buffer<float> gradient_;
  nn::GradientSink sink_;
  std::int64_t steps_ = 0;
};

}  // namespace tilewright::bench
