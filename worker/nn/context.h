// The context that every layer receives: thread pool, kernels, dropout keys, a linear layer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/kernels/ops.h"
#include "worker/runtime/memory.h"

namespace tilewright::nn {

using kernels::bf16;

template <typename Element>
struct Context {
  runtime::ThreadPool& pool;
  const kernels::Ops<Element>& ops;
  const kernels::ParameterOps& parameter_ops;
};

// Rows of a task that only zeroes them: long relative to its dispatch (about 1 us).
inline constexpr std::int64_t kTaskRows = 16;

// The key of one step's dropout. With p = 0 (evaluation) nothing is dropped.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;

  // Dropout sites. Site s of encoder layer l has the number 8 (l + 1) + s; embeddings and head
  // count as layer -1.
  enum LayerSite : std::uint32_t { kProbabilities = 0, kAttentionOutput = 1, kOutput = 2 };
  enum ModelSite : std::uint32_t { kEmbeddings = 0, kHead = 1 };

  kernels::Dropout at(std::int64_t layer, std::uint32_t site, float p) const {
    kernels::Dropout dropout;
    dropout.seed = seed;
    dropout.step = step;
    dropout.site = static_cast<std::uint32_t>(layer + 1) * 8 + site;
    dropout.threshold = static_cast<std::uint32_t>(std::lround(static_cast<double>(p) * 65536.0));
    dropout.scale = 65536.0f / static_cast<float>(65536 - dropout.threshold);
    return dropout;
  }
};

// One linear layer: its fp32 master inside the flat vector and its packed copies.
template <typename Element>
struct Linear {
  std::int64_t N = 0;
  std::int64_t K = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  Element* packed_forward = nullptr;
  Element* packed_backward = nullptr;

  // scratch: linear_forward_scratch bytes.
  void forward(const Context<Element>& c, const Element* x, std::int64_t rows, Element* y,
               std::byte* scratch) const {
    c.ops.linear_forward(c.pool, x, packed_forward, bias, rows, K, N, y, scratch);
  }
  void backward_input(const Context<Element>& c, const Element* dy, std::int64_t rows, Element* dx,
                      std::byte* scratch) const {
    c.ops.linear_backward_input(c.pool, dy, packed_backward, rows, K, N, dx, scratch);
  }
};

}  // namespace tilewright::nn
