#include "worker/nn/head_layers.h"

#include <algorithm>

#include "worker/runtime/bf16.h"

namespace tilewright::nn {
namespace {

bool has_row_per_token(const EncoderConfig& config) { return head_rows(config) == Rows::kTokens; }

}  // namespace

Rows head_rows(const EncoderConfig& config) {
  return config.head == Head::kQuestionAnswering ? Rows::kTokens : Rows::kExamples;
}

template <typename Element>
void HeadActivations<Element>::allocate(runtime::Arena& arena, const EncoderConfig& config,
                                        std::int64_t tokens, std::int64_t examples) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t rows = has_row_per_token(config) ? tokens : examples;
  if (!has_row_per_token(config)) {
    dense = arena.take<Element>(examples * H);
    activated = arena.take<Element>(examples * H);
    d_dense = arena.take<Element>(examples * H);
    d_first_token = arena.take<Element>(examples * H);
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
                                                      const HeadActivations<Element>& a,
                                                      const LayerScratch<Element>& scratch) const {
  const std::int64_t H = config.hidden_size;
  if (has_row_per_token(config)) {
    const Element* x = hidden;
    if (training && config.qa_dropout > 0) {
      c.ops.dropout_forward(c.pool, hidden, batch.T(), H,
                            key.at(-1, DropoutKey::kHead, config.qa_dropout),
                            batch.identity(Rows::kTokens), a.dropped);
      x = a.dropped;
    }
    output_.forward(c, x, batch.T(), a.logits, scratch.kernel);
    return {a.logits, static_cast<std::size_t>(batch.T() * config.num_labels)};
  }
  const std::int64_t B = batch.B();
  dense_.forward(c, hidden, B, a.dense, scratch.kernel);
  const auto& activation_forward = config.family->head_activation == HeadActivation::kTanh
                                       ? c.ops.tanh_dropout_forward
                                       : c.ops.relu_dropout_forward;
  activation_forward(c.pool, a.dense, B, H,
                     key.at(-1, DropoutKey::kHead, training ? config.classifier_dropout : 0.0f),
                     batch.identity(Rows::kExamples), a.activated, a.dropped);
  output_.forward(c, a.dropped, B, a.logits, scratch.kernel);
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
      c.ops.span_cross_entropy({batch.cu_seqlens.data(), batch.scored.data(), batch.labels.data(),
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
  if (has_row_per_token(config)) {
    backward_tokens(c, config, batch, key, hidden, a, scratch, sink);
  } else {
    backward_examples(c, config, batch, key, hidden, a, scratch, sink);
  }
}

template <typename Element>
void HeadLayers<Element>::backward_tokens(const Context<Element>& c, const EncoderConfig& config,
                                          const Batch& batch, const DropoutKey& key,
                                          const Element* hidden, const HeadActivations<Element>& a,
                                          const LayerScratch<Element>& scratch,
                                          const GradientSink& sink) const {
  c.pool.for_ranges(batch.T(), kTaskRows, [&](std::int64_t begin, std::int64_t end) {
    std::fill(scratch.d_hidden32 + begin * config.hidden_size,
              scratch.d_hidden32 + end * config.hidden_size, 0.0f);
  });
  const Element* x = config.qa_dropout > 0 ? a.dropped : hidden;
  weight_gradient(c, output_layout_, batch, Rows::kTokens, x, a.d_logits, scratch.kernel, sink);
  output_.backward_input(c, a.d_logits, batch.T(), scratch.d_input, scratch.kernel);
  c.ops.dropout_backward(c.pool, scratch.d_hidden32, scratch.d_input, batch.T(), config.hidden_size,
                         key.at(-1, DropoutKey::kHead, config.qa_dropout),
                         batch.identity(Rows::kTokens));
}

template <typename Element>
void HeadLayers<Element>::backward_examples(const Context<Element>& c, const EncoderConfig& config,
                                            const Batch& batch, const DropoutKey& key,
                                            const Element* hidden,
                                            const HeadActivations<Element>& a,
                                            const LayerScratch<Element>& scratch,
                                            const GradientSink& sink) const {
  const std::int64_t B = batch.B();
  const std::int64_t H = config.hidden_size;
  weight_gradient(c, output_layout_, batch, Rows::kExamples, a.dropped, a.d_logits, scratch.kernel,
                  sink);
  output_.backward_input(c, a.d_logits, B, a.d_dense, scratch.kernel);
  const auto& activation_backward = config.family->head_activation == HeadActivation::kTanh
                                        ? c.ops.tanh_dropout_backward
                                        : c.ops.relu_dropout_backward;
  activation_backward(c.pool, a.activated, a.d_dense, B, H,
                      key.at(-1, DropoutKey::kHead, config.classifier_dropout),
                      batch.identity(Rows::kExamples), a.d_dense);
  weight_gradient(c, dense_layout_, batch, Rows::kExamples, hidden, a.d_dense, scratch.kernel,
                  sink);
  dense_.backward_input(c, a.d_dense, B, a.d_first_token, scratch.kernel);
  std::transform(a.d_first_token, a.d_first_token + B * H, scratch.d_hidden32,
                 [](Element value) { return runtime::to_float(value); });
}

template struct HeadActivations<float>;
template struct HeadActivations<bf16>;
template class HeadLayers<float>;
template class HeadLayers<bf16>;

}  // namespace tilewright::nn
