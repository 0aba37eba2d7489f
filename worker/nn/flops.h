// Counts the floating-point operations of real tokens, for GFLOP/s in logs and benchmarks.
#pragma once

#include <cstdint>

#include "worker/nn/batch.h"
#include "worker/nn/encoder_config.h"

namespace tilewright::nn {

// A multiply-add counts 2. With P = 4 H^2 + 2 H I weights in a layer's matrices, L layers, examples
// of S_b tokens (without padding) and C outputs of the head, one forward pass takes
//   sum over b of [ 2 L P S_b + 4 L H S_b^2 + 2 H C S_b ]
// operations for question answering; backward takes twice as many. A head with one row per example
// has the last term 2 (H^2 + H C), and the last layer computes P - 3 H^2 of its weights only for
// the first token: 2 (P - 3 H^2) (S_b - 1) less.
// Embeddings, norms, activation functions, softmax, the optimizer and values that backward
// recomputes are not counted.
double example_flops(const EncoderConfig& config, std::size_t tokens);  // one example's forward
double forward_flops(const EncoderConfig& config, const Batch& batch);
inline double step_flops(const EncoderConfig& config, const Batch& batch) {
  return 3.0 * forward_flops(config, batch);
}

}  // namespace tilewright::nn
