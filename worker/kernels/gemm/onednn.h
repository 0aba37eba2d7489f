// Linear layers by oneDNN: the selectable backend, and the baseline of `bench gemm`.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// oneDNN chooses its instruction set itself (the environment's ONEDNN_MAX_CPU_ISA bounds it) and
// promises no bits across numbers of rows or threads; gradients are summed over all rows at once,
// not by the tree of shards.
template <typename T>
void fill_gemm_onednn(Ops<T>& ops);
extern template void fill_gemm_onednn<float>(Ops<float>&);
extern template void fill_gemm_onednn<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
