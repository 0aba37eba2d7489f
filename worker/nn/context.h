// What every layer computes with: the pool, the kernels, the step's dropout. Passed, never global.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/kernels/ops.h"
#include "worker/runtime/memory.h"

namespace tilewright::nn {

using kernels::bf16;

template <typename T>
struct Context {
  runtime::ThreadPool& pool;
  const kernels::Ops<T>& ops;
  const kernels::ParameterOps& parameter_ops;
};

// Keys this step's dropout; p = 0 (evaluation) switches it off.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;

  // Places in a layer. Layer l has sites 8 (l + 1) + place; embeddings and head have layer -1.
  enum Place : std::uint32_t { kProbabilities = 0, kAttentionOutput = 1, kOutput = 2 };
  enum Outside : std::uint32_t { kEmbeddings = 0, kHead = 1 };

  kernels::Dropout at(std::int64_t layer, std::uint32_t place, float p) const {
    kernels::Dropout dropout;
    dropout.seed = seed;
    dropout.step = step;
    dropout.site = static_cast<std::uint32_t>(layer + 1) * 8 + place;
    dropout.threshold = static_cast<std::uint32_t>(std::lround(static_cast<double>(p) * 65536.0));
    dropout.scale = 65536.0f / static_cast<float>(65536 - dropout.threshold);
    return dropout;
  }
};

// A linear layer at work: fp32 master inside the flat vector, packed copies in T.
template <typename T>
struct Linear {
  std::int64_t N = 0;
  std::int64_t K = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  T* packed_forward = nullptr;
  T* packed_backward = nullptr;

  void forward(const Context<T>& c, const T* x, std::int64_t rows, T* y) const {
    c.ops.linear_forward(c.pool, x, packed_forward, bias, rows, K, N, y);
  }
  void backward_input(const Context<T>& c, const T* dy, std::int64_t rows, T* dx) const {
    c.ops.linear_backward_input(c.pool, dy, packed_backward, rows, K, N, dx);
  }
};

}  // namespace tilewright::nn
