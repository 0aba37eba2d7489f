// Linear layers by oneDNN: the selectable backend, and the baseline of `bench gemm`.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// oneDNN chooses its instruction set itself (the environment's ONEDNN_MAX_CPU_ISA bounds it) and
// promises no bits across numbers of rows or threads; gradients are summed over all rows at once,
// not by the tree of shards.
template <typename T>
void fill_gemm_onednn(Ops<T>& ops);
// False where oneDNN has no kernels for this type on `isa` (bf16 needs AVX-512). Otherwise holds it
// to `isa`, for fair comparisons, if it has not run in this process before.
bool limit_onednn(Isa isa, bool bf16);

extern template void fill_gemm_onednn<float>(Ops<float>&);
extern template void fill_gemm_onednn<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
