// One encoder layer, forward and backward: attention and feed-forward, each followed by a residual
// connection and layer norm (Devlin et al., 2019; post-norm as in the original Transformer).
#pragma once

#include "worker/nn/batch.h"
#include "worker/nn/context.h"
#include "worker/nn/gradients.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// Whether a backward follows the forward.
enum class Use { kTraining, kInference };

// The activations that forward stores for backward. T tokens, H hidden size, I intermediate size, A
// heads. R rows are computed after the attention: T, or one per example in the last layer if its
// head reads only the first tokens.
template <typename Element>
struct LayerActivations {
  // What EncoderLayer::forward_before_output() writes.
  Element* qkv = nullptr;            // [T, 3H]
  Element* context = nullptr;        // [T, H]
  float* log_sum_exp = nullptr;      // [A, T]
  Element* row_context = nullptr;    // [R, H] the rows of context that are used
  float* row_residual = nullptr;     // [R, H] those of the residual, if R is not T
  float* row_stats = nullptr;        // [R, 2] and of its statistics
  float* attention_sum = nullptr;    // [R, H] before layer norm
  float* attention_stats = nullptr;  // [R, 2]
  Element* attended = nullptr;       // [R, H] after layer norm
  Element* intermediate = nullptr;   // [R, I] before GELU
  Element* activated = nullptr;      // [R, I] after GELU
  // What else forward() writes: the output and the residual of the next layer.
  float* output_sum = nullptr;    // [R, H]
  float* output_stats = nullptr;  // [R, 2]
  Element* output = nullptr;      // [R, H]

  // `count`: R. Layers may share what is computed before the output, with memory for T rows.
  void allocate_before_output(runtime::Arena& arena, const EncoderConfig& config,
                              std::int64_t tokens, std::int64_t count);
  void allocate_first_tokens(runtime::Arena& arena, const EncoderConfig& config,
                             std::int64_t examples);  // if R is not T
  void allocate_output(runtime::Arena& arena, const EncoderConfig& config, std::int64_t count);
};

// The gradient of a linear layer's weight and bias for each group of shards. x [rows, K], dy [rows,
// N].
template <typename Element>
void weight_gradient(const Context<Element>& c, const LinearLayout& linear, const Batch& batch,
                     Rows rows, const Element* x, const Element* dy, std::byte* scratch,
                     const GradientSink& sink);

// Buffers shared by all layers. Inference has only those that forward writes.
template <typename Element>
struct LayerScratch {
  Element* branch = nullptr;    // [T, H] output of attention or feed-forward, added to the residual
  float* embedded32 = nullptr;  // [T, H] output of the embeddings, the residual of layer 0
  float* d_hidden32 = nullptr;  // [T, H] gradient of the residual stream, in and out
  Element* d_branch = nullptr;  // [T, H] same memory as branch
  Element* d_input = nullptr;   // [T, H] gradient through the branch, in and out
  Element* d_intermediate = nullptr;  // [T, I]
  Element* d_qkv = nullptr;           // [T, 3H] same memory as d_intermediate
  std::byte* kernel = nullptr;        // scratch of one kernel call

  void allocate(runtime::Arena& arena, const EncoderConfig& config, std::int64_t tokens,
                std::size_t kernel_bytes, Use use);
};

template <typename Element>
struct EncoderLayer {
  std::int64_t index = 0;
  EncoderLayerLayout layout;
  Linear<Element> qkv, attention_output, intermediate, output;
  kernels::LayerNorm attention_norm, output_norm;
  Rows rows = Rows::kTokens;  // of the output

  // `input` [T, H] is `residual` rounded to Element. Writes the output to a.output; its residual is
  // residual_of(a).
  void forward(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
               const DropoutKey& key, bool training, const Element* input,
               kernels::Residual residual, const LayerActivations<Element>& a,
               const LayerScratch<Element>& scratch) const;
  // The part of forward() before the output's linear layer. It writes all that backward() reads
  // except the output's sum and statistics; the same arguments give the same bits, also of dropout.
  void forward_before_output(const Context<Element>& c, const EncoderConfig& config,
                             const Batch& batch, const DropoutKey& key, bool training,
                             const Element* input, kernels::Residual residual,
                             const LayerActivations<Element>& a,
                             const LayerScratch<Element>& scratch) const;
  kernels::Residual residual_of(const LayerActivations<Element>& a) const {
    return {a.output_sum, a.output_stats, output_norm};
  }
  // The gradient of the output is scratch.d_hidden32 [R, H] (residual path) plus d_branch (null for
  // the last layer). Writes the gradient of the input to scratch.d_hidden32 and scratch.d_input.
  void backward(const Context<Element>& c, const EncoderConfig& config, const Batch& batch,
                const DropoutKey& key, const Element* input, const LayerActivations<Element>& a,
                const LayerScratch<Element>& scratch, const Element* d_branch,
                const GradientSink& sink) const;
};

}  // namespace tilewright::nn
