// The ceiling of this CPU: what its multiply-add units do on operands that stay in registers.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// GFLOP/s of all threads of the pool together, with the instruction that `isa` gives the linear
// layers for bf16 or float activations. Takes about 50 ms; the best slice of a few milliseconds
// counts, so that a neighbour on the same cores disturbs it little.
double measure_peak_gflops(Isa isa, bool bf16, ThreadPool& pool);

}  // namespace tilewright::kernels
