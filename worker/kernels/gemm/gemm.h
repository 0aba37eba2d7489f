// The linear layers' part of the table of kernels.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// Fills packed_weight_size, pack_weight and the linear_... entries.
template <typename T>
void fill_gemm(Ops<T>& ops, Isa isa, GemmBackend backend);
template <>
void fill_gemm<float>(Ops<float>& ops, Isa isa, GemmBackend backend);
template <>
void fill_gemm<bf16>(Ops<bf16>& ops, Isa isa, GemmBackend backend);

}  // namespace tilewright::kernels
