#include "worker/nn/head_layers.h"

#include <algorithm>
#include <cstring>

#include "worker/runtime/bf16.h"

namespace tilewright::nn {
namespace {

bool has_row_per_token(const EncoderConfig& config) {
  return config.head == Head::kQuestionAnswering;
}

// The shards' offsets into matrices with one row per example or per token.
enum class Rows { kExamples, kTokens };

template <typename Element>
void weight_gradient(const Context<Element>& c, const LinearLayout& linear, const Batch& batch,
                     Rows rows, const Element* x, const Element* dy, std::byte* scratch,
                     const GradientSink& sink) {
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const ShardGroup& group = batch.groups[g];
    c.ops.linear_backward_weight(
        c.pool, x, dy, rows == Rows::kExamples ? group.example_offsets : group.token_offsets,
        linear.K, linear.N, sink.groups[g] + linear.weight, sink.groups[g] + linear.bias, scratch);
  }
}

kernels::RowIdentity token_identity(const Batch& batch) {
  return {batch.token_example.data(), batch.positions.data()};
}

}  // namespace

template <typename Element>
void HeadActivations<Element>::allocate(runtime::Arena& arena, const EncoderConfig& config,
                                        std::int64_t tokens, std::int64_t examples) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t rows = has_row_per_token(config) ? tokens : examples;
  if (!has_row_per_token(config)) {
    first_token = arena.take<Element>(examples * H);
    dense = arena.take<Element>(examples * H);
    activated = arena.take<Element>(examples * H);
    d_dense = arena.take<Element>(examples * H);
    d_first_token = arena.take<Element>(examples * H);
    zeros = arena.take<std::int32_t>(examples);
  }
  if (!has_row_per_token(config) || config.qa_dropout > 0) {
    dropped = arena.take<Element>(rows * H);
  }
  logits = arena.take<Element>(rows * config.num_labels);
  d_logits = arena.take<Element>(rows * config.num_labels);
  losses = arena.take<float>(examples);
}

template <typename Element>
HeadLayers<Element>::HeadLayers(const EncoderConfig& config, const ParameterLayout& layout,
                                const std::vector<Linear<Element>>& linears)
    : output_layout_(layout.output), dense_layout_(layout.head_dense), output_(linears[0]) {
  if (!has_row_per_token(config)) dense_ = linears[1];
}

template <typename Element>
std::span<const Element> HeadLayers<Element>::forward(const Context<Element>& c,
                                                      const EncoderConfig& config,
                                                      const Batch& batch, const DropoutKey& key,
                                                      bool training, const Element* hidden,
                                                      const HeadActivations<Element>& a) const {
  const std::int64_t H = config.hidden_size;
  if (has_row_per_token(config)) {
    const Element* x = hidden;
    if (training && config.qa_dropout > 0) {
      c.ops.dropout_forward(c.pool, hidden, batch.T(), H,
                            key.at(-1, DropoutKey::kHead, config.qa_dropout), token_identity(batch),
                            a.dropped);
      x = a.dropped;
    }
    output_.forward(c, x, batch.T(), a.logits);
    return {a.logits, static_cast<std::size_t>(batch.T() * config.num_labels)};
  }
  const std::int64_t B = batch.B();
  for (std::int64_t b = 0; b < B; ++b) {
    const Element* row =
        hidden + static_cast<std::int64_t>(batch.cu_seqlens[static_cast<std::size_t>(b)]) * H;
    std::copy_n(row, H, a.first_token + b * H);
  }
  dense_.forward(c, a.first_token, B, a.dense);
  std::fill_n(a.zeros, B, 0);
  const auto& activation_forward = config.family->head_activation == HeadActivation::kTanh
                                       ? c.ops.tanh_dropout_forward
                                       : c.ops.relu_dropout_forward;
  activation_forward(c.pool, a.dense, B, H,
                     key.at(-1, DropoutKey::kHead, training ? config.classifier_dropout : 0.0f),
                     {batch.example.data(), a.zeros}, a.activated, a.dropped);
  output_.forward(c, a.dropped, B, a.logits);
  return {a.logits, static_cast<std::size_t>(B * config.num_labels)};
}

template <typename Element>
void HeadLayers<Element>::loss(const Context<Element>& c, const EncoderConfig& config,
                               const Batch& batch, float scale,
                               const HeadActivations<Element>& a) const {
  switch (config.head) {
    case Head::kClassification:
      c.ops.softmax_cross_entropy(a.logits, batch.labels.data(), batch.B(), config.num_labels,
                                  scale, config.label_smoothing, a.losses, a.d_logits);
      return;
    case Head::kRegression:
      c.ops.squared_error(a.logits, batch.values.data(), batch.B(), scale, a.losses, a.d_logits);
      return;
    case Head::kQuestionAnswering:
      c.ops.span_cross_entropy({batch.cu_seqlens.data(), batch.lengths.data(), batch.labels.data(),
                                batch.last_labels.data(), batch.B()},
                               a.logits, scale, a.losses, a.d_logits);
      return;
  }
}

template <typename Element>
void HeadLayers<Element>::backward(const Context<Element>& c, const EncoderConfig& config,
                                   const Batch& batch, const DropoutKey& key, const Element* hidden,
                                   const HeadActivations<Element>& a,
                                   const LayerScratch<Element>& scratch,
                                   const GradientSink& sink) const {
  std::memset(scratch.d_hidden32, 0,
              static_cast<std::size_t>(batch.T() * config.hidden_size) * sizeof(float));
  if (has_row_per_token(config)) {
    backward_tokens(c, config, batch, key, hidden, a, scratch, sink);
  } else {
    backward_examples(c, config, batch, key, a, scratch, sink);
  }
}

template <typename Element>
void HeadLayers<Element>::backward_tokens(const Context<Element>& c, const EncoderConfig& config,
                                          const Batch& batch, const DropoutKey& key,
                                          const Element* hidden, const HeadActivations<Element>& a,
                                          const LayerScratch<Element>& scratch,
                                          const GradientSink& sink) const {
  const Element* x = config.qa_dropout > 0 ? a.dropped : hidden;
  weight_gradient(c, output_layout_, batch, Rows::kTokens, x, a.d_logits, scratch.kernel, sink);
  output_.backward_input(c, a.d_logits, batch.T(), scratch.d_input);
  c.ops.dropout_backward(c.pool, scratch.d_hidden32, scratch.d_input, batch.T(), config.hidden_size,
                         key.at(-1, DropoutKey::kHead, config.qa_dropout), token_identity(batch));
}

template <typename Element>
void HeadLayers<Element>::backward_examples(const Context<Element>& c, const EncoderConfig& config,
                                            const Batch& batch, const DropoutKey& key,
                                            const HeadActivations<Element>& a,
                                            const LayerScratch<Element>& scratch,
                                            const GradientSink& sink) const {
  const std::int64_t B = batch.B();
  const std::int64_t H = config.hidden_size;
  weight_gradient(c, output_layout_, batch, Rows::kExamples, a.dropped, a.d_logits, scratch.kernel,
                  sink);
  output_.backward_input(c, a.d_logits, B, a.d_dense);
  const auto& activation_backward = config.family->head_activation == HeadActivation::kTanh
                                        ? c.ops.tanh_dropout_backward
                                        : c.ops.relu_dropout_backward;
  activation_backward(c.pool, a.activated, a.d_dense, B, H,
                      key.at(-1, DropoutKey::kHead, config.classifier_dropout),
                      {batch.example.data(), a.zeros}, a.d_dense);
  weight_gradient(c, dense_layout_, batch, Rows::kExamples, a.first_token, a.d_dense,
                  scratch.kernel, sink);
  dense_.backward_input(c, a.d_dense, B, a.d_first_token);
  // Only the first token of each example ([CLS]) is an input of the head.
  for (std::int64_t b = 0; b < B; ++b) {
    float* row = scratch.d_hidden32 +
                 static_cast<std::int64_t>(batch.cu_seqlens[static_cast<std::size_t>(b)]) * H;
    for (std::int64_t h = 0; h < H; ++h) row[h] = runtime::to_float(a.d_first_token[b * H + h]);
  }
}

template struct HeadActivations<float>;
template struct HeadActivations<bf16>;
template class HeadLayers<float>;
template class HeadLayers<bf16>;

}  // namespace tilewright::nn
