// One encoder layer: attention and feed-forward, each followed by residual and layer norm
// (Devlin et al., 2019; post-norm as in the original Transformer).
#pragma once

#include "worker/nn/batch.h"
#include "worker/nn/context.h"
#include "worker/nn/gradients.h"
#include "worker/nn/parameters.h"

namespace tilewright::nn {

// What forward keeps for backward; T tokens, H hidden, I intermediate, A heads.
template <typename T>
struct LayerActivations {
  T* qkv = nullptr;                  // [T, 3H]
  T* context = nullptr;              // [T, H]
  float* log_sum_exp = nullptr;      // [T, A]
  float* attention_sum = nullptr;    // [T, H] before the norm
  float* attention_stats = nullptr;  // [T, 2]
  T* attended = nullptr;             // [T, H] after the norm
  T* intermediate = nullptr;         // [T, I] before GELU
  T* activated = nullptr;            // [T, I] after GELU
  float* output_sum = nullptr;       // [T, H]
  float* output_stats = nullptr;     // [T, 2]
  T* output = nullptr;               // [T, H]

  void lay_out(runtime::Arena& arena, const BertConfig& config, std::int64_t tokens);
};

// Buffers that all layers share.
template <typename T>
struct LayerScratch {
  T* branch = nullptr;          // [T, H] what joins the residual
  float* attended32 = nullptr;  // [T, H]
  float* hidden32 = nullptr;    // [T, H] the residual stream, in and out
  float* d_hidden32 = nullptr;  // [T, H] gradient of the residual stream, in and out
  float* d_sum = nullptr;       // [T, H]
  T* d_branch = nullptr;        // [T, H]
  T* d_input = nullptr;         // [T, H] gradient through the branch, in and out
  T* d_intermediate = nullptr;  // [T, I]
  T* d_qkv = nullptr;           // [T, 3H]
  std::byte* kernel = nullptr;  // scratch of single kernels

  void lay_out(runtime::Arena& arena, const BertConfig& config, std::int64_t tokens,
               std::size_t kernel_bytes);
};

template <typename T>
struct EncoderLayer {
  std::int64_t index = 0;
  EncoderLayerLayout layout;
  Linear<T> qkv, attention_output, intermediate, output;
  kernels::LayerNorm attention_norm, output_norm;

  // input [T, H] and scratch.hidden32 hold the same values; output goes to a.output and
  // scratch.hidden32.
  void forward(const Context<T>& c, const BertConfig& config, const Batch& batch,
               const DropoutKey& key, bool training, const T* input, const LayerActivations<T>& a,
               const LayerScratch<T>& scratch) const;
  // Takes the gradient of the output as scratch.d_hidden32 (residual path) plus d_branch (null for
  // the last layer), leaves the input's in scratch.d_hidden32 and scratch.d_input.
  void backward(const Context<T>& c, const BertConfig& config, const Batch& batch,
                const DropoutKey& key, const T* input, const LayerActivations<T>& a,
                const LayerScratch<T>& scratch, const T* d_branch, const GradientSink& sink) const;
};

}  // namespace tilewright::nn
