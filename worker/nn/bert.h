// BERT with a sequence-classification head (Hugging Face's BertForSequenceClassification): forward
// and a hand-written backward over packed tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/nn/batch.h"
#include "worker/nn/bert_config.h"
#include "worker/nn/context.h"
#include "worker/nn/encoder_layer.h"
#include "worker/nn/gradients.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// Rows that went through the encoder's linear layers; padded positions show here.
struct TokenCounters {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

template <typename T>
class BertClassifier {
 public:
  // Bytes of activations and scratch that a pass of at most these sizes needs.
  static std::size_t activation_bytes(const BertConfig& config, const Context<T>& context,
                                      std::int64_t tokens, std::int64_t examples,
                                      std::int64_t max_seqlen, std::int64_t shards);
  // Bytes of packed weights.
  static std::size_t packed_bytes(const BertConfig& config, const Context<T>& context);

  // Masters start at zero; fill parameters() and call pack_weights().
  BertClassifier(const BertConfig& config, const Context<T>& context);
  ~BertClassifier();

  const BertConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  std::span<float> parameters() const { return parameters_.span(); }
  // Elements of a gradient vector that touches R word rows (the last: the loss).
  std::int64_t gradient_count(std::int64_t touched_rows) const {
    return layout_.word_embeddings + touched_rows * config_.hidden_size + 1;
  }
  // Rewrites the packed copies of rows [row_begin, row_end) of linear layer i of
  // layout().linears().
  void pack_rows(std::size_t linear, std::int64_t row_begin, std::int64_t row_end);
  void pack_weights();

  // Makes room for passes of these sizes; a pass that exceeds them is a bug.
  void reserve(std::int64_t tokens, std::int64_t examples, std::int64_t max_seqlen,
               std::int64_t shards);
  // Logits [B, num_labels] of the batch, valid until the next pass.
  std::span<const T> forward(const Batch& batch, const DropoutKey& key, bool training);
  // Sum of cross entropies times loss_scale, and its gradient into `sink`, one vector a group of
  // the batch; follows a forward of the same batch with training = true.
  void backward(const Batch& batch, const DropoutKey& key, float loss_scale,
                const TouchedRows& touched, const GradientSink& sink);
  // Cross entropies [B] of the last forward, without a gradient.
  std::span<const float> losses(const Batch& batch);

  const TokenCounters& counters() const { return counters_; }

 private:
  struct Activations;

  BertConfig config_;
  Context<T> c_;
  ParameterLayout layout_;
  runtime::Buffer<float> parameters_;
  runtime::Buffer<T> packed_;
  std::vector<Linear<T>> linears_;  // as layout_.linears()
  std::vector<EncoderLayer<T>> layers_;
  runtime::Arena arena_;
  std::unique_ptr<Activations> a_;
  TokenCounters counters_;
};

}  // namespace tilewright::nn
