// The layers between the encoder and the loss, forward and backward.
//
// Classification and regression: output(dropout(activation(dense(first token)))), one row per
// example. Question answering: output(dropout(x)) of every token. The losses are those of Head.
#pragma once

#include <span>
#include <vector>

#include "worker/nn/batch.h"
#include "worker/nn/context.h"
#include "worker/nn/encoder_config.h"
#include "worker/nn/encoder_layer.h"
#include "worker/nn/gradients.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// The rows of the encoder's output that the head reads, and of the logits.
Rows head_rows(const EncoderConfig& config);

// T tokens, B examples, C outputs, R rows of head_rows(). What a head does not use is null.
template <typename Element>
struct HeadActivations {
  Element* dense = nullptr;          // [B, H] before the activation function
  Element* activated = nullptr;      // [B, H]
  Element* dropped = nullptr;        // [R, H] input of the last layer
  Element* logits = nullptr;         // [R, C]
  Element* d_logits = nullptr;       // [R, C]
  Element* d_dense = nullptr;        // [B, H]
  Element* d_first_token = nullptr;  // [B, H]
  float* losses = nullptr;           // [B]

  void allocate(runtime::Arena& arena, const EncoderConfig& config, std::int64_t tokens,
                std::int64_t examples);
};

template <typename Element>
class HeadLayers {
 public:
  HeadLayers() = default;
  // `linears` in the order of layout.linears().
  HeadLayers(const EncoderConfig& config, const ParameterLayout& layout,
             const std::vector<Linear<Element>>& linears);

  // `hidden` [R, H] is the encoder's output. Returns the logits [R, C].
  std::span<const Element> forward(const Context<Element>& c, const EncoderConfig& config,
                                   const Batch& batch, const DropoutKey& key, bool training,
                                   const Element* hidden, const HeadActivations<Element>& a,
                                   const LayerScratch<Element>& scratch) const;
  // Writes the losses of the last forward() and `scale` times their gradient to a.losses and
  // a.d_logits.
  void loss(const Context<Element>& c, const EncoderConfig& config, const Batch& batch, float scale,
            const HeadActivations<Element>& a) const;
  // Call it after loss(). Writes the gradient of `hidden` to scratch.d_hidden32.
  void backward(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
                const DropoutKey& key, const Element* hidden, const HeadActivations<Element>& a,
                const LayerScratch<Element>& scratch, const GradientSink& sink) const;

 private:
  void backward_examples(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
                         const DropoutKey& key, const Element* hidden,
                         const HeadActivations<Element>& a, const LayerScratch<Element>& scratch,
                         const GradientSink& sink) const;
  void backward_tokens(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
                       const DropoutKey& key, const Element* hidden,
                       const HeadActivations<Element>& a, const LayerScratch<Element>& scratch,
                       const GradientSink& sink) const;

  LinearLayout output_layout_, dense_layout_;
  Linear<Element> output_, dense_;
};

}  // namespace tilewright::nn
