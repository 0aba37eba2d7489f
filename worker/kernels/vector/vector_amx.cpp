// The vector kernels for AMX: those of AVX512-BF16, with the attention of bf16 on tiles. Only the
// table has external linkage.

// Order matters: the vector type, then the code that uses it.
// clang-format off
#include "worker/kernels/gemm/amx_tiles.h"
#include "worker/kernels/vector/vec_avx512.inl"
#include "worker/kernels/math/math.inl"
#include "worker/kernels/vector/philox.inl"
#include "worker/kernels/vector/dropout.inl"
#include "worker/kernels/vector/norm.inl"
#include "worker/kernels/vector/pointwise.inl"
#include "worker/kernels/vector/parameters.inl"
#include "worker/kernels/vector/attention_masks.inl"
#include "worker/kernels/vector/attention_head.inl"
#include "worker/kernels/vector/product.inl"
#include "worker/kernels/vector/attention_pack.inl"
#include "worker/kernels/vector/attention.inl"
#include "worker/kernels/vector/attention_pairs.inl"
#include "worker/kernels/vector/attention_amx.inl"
#include "worker/kernels/vector/table.inl"
// clang-format on

namespace tilewright::kernels {
namespace {

constexpr KernelTables make_amx_tables() {
  KernelTables tables = make_kernel_tables("amx");
  set_attention_on_tiles<HardwareTiles>(tables.bfloat16);
  return tables;
}

}  // namespace

constinit const KernelTables kAmxKernels = make_amx_tables();

}  // namespace tilewright::kernels
