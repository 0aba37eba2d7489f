// Parameters whose exact gradient is zero, so that the error of a computed one has no size of its
// own.
#pragma once

#include <algorithm>

#include "worker/nn/parameters.h"

namespace tilewright::nn::testing {

// The tensor to whose gradient's norm the error of `tensor` is relative (reference_name in
// tests/golden/write_goldens.py): of a key bias the query bias; with question answering, and
// without dropout after the last norm, of the last two biases the weights beside them; otherwise
// `tensor`.
inline const Tensor& norm_reference(const ParameterLayout& layout, const Tensor& tensor) {
  const auto at_offset = [&](std::int64_t offset) -> const Tensor& {
    return *std::find_if(layout.tensors.begin(), layout.tensors.end(),
                         [&](const Tensor& other) { return other.offset == offset; });
  };
  for (const EncoderLayerLayout& layer : layout.layers) {
    // The bias of query, key and value: three tensors of H elements.
    if (tensor.offset == layer.qkv.bias + tensor.count) return at_offset(layer.qkv.bias);
  }
  if (layout.head_dense.N == 0) {
    const NormLayout& last = layout.layers.back().output_norm;
    if (tensor.offset == layout.output.bias) return at_offset(layout.output.weight);
    if (tensor.offset == last.beta) return at_offset(last.gamma);
  }
  return tensor;
}

// Terms as large as those of the reference cancel over all tokens. The remaining rounding error is
// several times that of a sum without cancellation.
inline double cancellation_factor(const ParameterLayout& layout, const Tensor& tensor) {
  constexpr double kCancellation = 4.0;
  return &norm_reference(layout, tensor) == &tensor ? 1.0 : kCancellation;
}

}  // namespace tilewright::nn::testing
