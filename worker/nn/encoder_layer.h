// One encoder layer, forward and backward: attention and feed-forward, each followed by a residual
// connection and layer norm (Devlin et al., 2019; post-norm as in the original Transformer).
#pragma once

#include "worker/nn/batch.h"
#include "worker/nn/context.h"
#include "worker/nn/gradients.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// The activations that forward stores for backward. T tokens, H hidden size, I intermediate size, A
// heads.
template <typename Element>
struct LayerActivations {
  Element* qkv = nullptr;            // [T, 3H]
  Element* context = nullptr;        // [T, H]
  float* log_sum_exp = nullptr;      // [A, T]
  float* attention_sum = nullptr;    // [T, H] before layer norm
  float* attention_stats = nullptr;  // [T, 2]
  Element* attended = nullptr;       // [T, H] after layer norm
  Element* intermediate = nullptr;   // [T, I] before GELU
  Element* activated = nullptr;      // [T, I] after GELU
  float* output_sum = nullptr;       // [T, H]
  float* output_stats = nullptr;     // [T, 2]
  Element* output = nullptr;         // [T, H]

  void allocate(runtime::Arena& arena, const EncoderConfig& config, std::int64_t tokens);
};

// Buffers shared by all layers.
template <typename Element>
struct LayerScratch {
  Element* branch = nullptr;    // [T, H] output of attention or feed-forward, added to the residual
  float* attended32 = nullptr;  // [T, H]
  float* hidden32 = nullptr;    // [T, H] the residual stream, in and out
  float* d_hidden32 = nullptr;  // [T, H] gradient of the residual stream, in and out
  float* d_sum = nullptr;       // [T, H]
  Element* d_branch = nullptr;  // [T, H]
  Element* d_input = nullptr;   // [T, H] gradient through the branch, in and out
  Element* d_intermediate = nullptr;  // [T, I]
  Element* d_qkv = nullptr;           // [T, 3H]
  std::byte* kernel = nullptr;        // scratch of one kernel call

  void allocate(runtime::Arena& arena, const EncoderConfig& config, std::int64_t tokens,
                std::size_t kernel_bytes);
};

template <typename Element>
struct EncoderLayer {
  std::int64_t index = 0;
  EncoderLayerLayout layout;
  Linear<Element> qkv, attention_output, intermediate, output;
  kernels::LayerNorm attention_norm, output_norm;

  // `input` [T, H] and scratch.hidden32 hold the same values. Writes the output to a.output and
  // scratch.hidden32.
  void forward(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
               const DropoutKey& key, bool training, const Element* input,
               const LayerActivations<Element>& a, const LayerScratch<Element>& scratch) const;
  // The gradient of the output is scratch.d_hidden32 (residual path) plus d_branch (null for the
  // last layer). Writes the gradient of the input to scratch.d_hidden32 and scratch.d_input.
  void backward(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
                const DropoutKey& key, const Element* input, const LayerActivations<Element>& a,
                const LayerScratch<Element>& scratch, const Element* d_branch,
                const GradientSink& sink) const;
};

}  // namespace tilewright::nn
