// Linear layers over an Engine: cuts the products into blocks, distributes them to the threads and
// iterates over the shards.
#pragma once

#include <cstdint>

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// Fills the entries of the linear layers. `engine` must have static storage duration.
template <typename Activation>
void fill_gemm_native(Ops<Activation>& ops, const Engine<Activation>& engine);

// The use of the threads (thread_use) by forward, dX and dW of a linear layer.
struct LayerUse {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};
template <typename Activation>
LayerUse layer_thread_use(const Engine<Activation>& engine, std::int64_t rows, std::int64_t k,
                          std::int64_t n, int threads);

}  // namespace tilewright::kernels
