// The vector kernels for AVX-512. Only the table has external linkage.

// Order matters: the vector type, then the code that uses it.
// clang-format off
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
#include "worker/kernels/vector/table.inl"
// clang-format on

namespace tilewright::kernels {

constinit const KernelTables kAvx512Kernels = make_kernel_tables("avx512");

}  // namespace tilewright::kernels
