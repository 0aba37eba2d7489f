// Linear layers over an Engine: cuts the products into blocks, distributes them to the threads and
// iterates over the shards.
#pragma once

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// Fills the entries of the linear layers. `engine` must have static storage duration.
template <typename Activation>
void fill_gemm_native(Ops<Activation>& ops, const Engine<Activation>& engine);

}  // namespace tilewright::kernels
