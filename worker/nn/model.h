// An encoder of a model family with a head (Hugging Face's BertForSequenceClassification,
// DistilBertForQuestionAnswering, ...): forward and a hand-written backward over packed tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/nn/batch.h"
#include "worker/nn/context.h"
#include "worker/nn/encoder_config.h"
#include "worker/nn/encoder_layer.h"
#include "worker/nn/gradients.h"
#include "worker/nn/head_layers.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// Rows computed by the encoder's linear layers, padded positions included.
struct TokenCounters {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

template <typename Element>
class Model {
 public:
  // Bytes of activations and scratch for batches within `limits`. `shards`: in training only.
  static std::size_t activation_bytes(const EncoderConfig& config, const Context<Element>& context,
                                      const BatchLimits& limits, std::int64_t shards, Use use);
  // Bytes of packed weights.
  static std::size_t packed_bytes(const EncoderConfig& config, const Context<Element>& context);

  // The fp32 master weights are initially zero. Fill parameters(), then call pack_weights().
  Model(const EncoderConfig& config, const Context<Element>& context);
  ~Model();

  const EncoderConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  std::span<float> parameters() const { return parameters_.span(); }
  // Elements of a gradient vector with this many word rows. The last element is the loss.
  std::int64_t gradient_count(std::int64_t touched_rows) const {
    return layout_.word_embeddings + touched_rows * config_.hidden_size + 1;
  }
  // Rewrites the packed copies of rows [row_begin, row_end) of layout().linears()[linear].
  void pack_rows(std::size_t linear, std::int64_t row_begin, std::int64_t row_end);
  void pack_weights();

  // Allocates memory for batches within these limits. A larger batch is a programming error.
  // Training and inference use the same memory.
  void reserve(const BatchLimits& training, std::int64_t shards, const BatchLimits& inference = {});
  // All of this memory.
  std::vector<std::span<std::byte>> memory() const {
    return {parameters_.bytes(), packed_.bytes(), arena_.bytes()};
  }
  // Returns the logits, valid until the next forward(): [B, num_labels], or [T, 2] for question
  // answering.
  std::span<const Element> forward(const Batch& batch, const DropoutKey& key, bool training);
  // Writes the gradient of loss_scale * (sum of the examples' losses) to `sink`, one vector per
  // group of the batch. Call it after forward() of the same batch with training = true.
  void backward(const Batch& batch, const DropoutKey& key, float loss_scale,
                const TouchedRows& touched, const GradientSink& sink);
  // Losses [B] of the last forward(), without a gradient. For question answering the batch must
  // have answers.
  std::span<const float> losses(const Batch& batch);

  const TokenCounters& counters() const { return counters_; }
  runtime::ThreadPool& pool() const { return c_.pool; }

 private:
  struct Activations;

  // The input of an encoder layer in the last forward(), rounded to Element and not.
  const Element* input_of(std::size_t layer) const;
  kernels::Residual residual_of_input(std::size_t layer) const;
  // `d_branch` [T, H]: what the first layer leaves for its input, beside scratch.d_hidden32.
  void backward_embeddings(const Batch& batch, const DropoutKey& key, const Element* d_branch,
                           const TouchedRows& touched, const GradientSink& sink);
  // Writes the sum of each group's losses to element `index` of its gradient.
  void store_losses(const Batch& batch, float loss_scale, std::int64_t index,
                    const GradientSink& sink);

  EncoderConfig config_;
  Context<Element> c_;
  ParameterLayout layout_;
  runtime::Buffer<float> parameters_;
  runtime::Buffer<Element> packed_;
  std::vector<Linear<Element>> linears_;  // in the order of layout_.linears()
  HeadLayers<Element> head_;
  std::vector<EncoderLayer<Element>> layers_;
  BatchLimits limits_[2];  // by Use
  runtime::Arena arena_;
  std::unique_ptr<Activations> activations_[2];  // by Use, both in arena_
  Activations* a_ = nullptr;                     // of the last forward()
  RowIndex rows_;
  std::vector<std::int32_t> identity_rows_;  // [max positions] row_of_id[i] = i
  TokenCounters counters_;
};

}  // namespace tilewright::nn
