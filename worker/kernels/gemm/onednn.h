// Linear layers on oneDNN: the alternative GEMM backend and the baseline of `bench gemm`.
#pragma once

#include "worker/kernels/ops.h"
#include "worker/runtime/precision.h"

namespace tilewright::kernels {

// oneDNN selects its instruction set itself (ONEDNN_MAX_CPU_ISA limits it). The bits of its results
// may depend on the number of rows and threads, and gradients are summed over all rows at once, not
// by the shard tree.
template <typename Activation>
void fill_gemm_onednn(Ops<Activation>& ops);

// Whether oneDNN has kernels for activations of this precision on `isa`.
bool has_onednn(Isa isa, runtime::Precision precision);

// Returns has_onednn(). If true, it limits oneDNN to `isa`, for fair comparisons, unless oneDNN has
// already run in this process.
bool limit_onednn_isa(Isa isa, runtime::Precision precision);

extern template void fill_gemm_onednn<float>(Ops<float>&);
extern template void fill_gemm_onednn<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
