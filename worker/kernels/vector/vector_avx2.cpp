// The vector loops for AVX2: nothing but its table has external linkage.

// The vector type comes first, then what is written in it: the order matters.
// clang-format off
#include "worker/kernels/vector/vec_avx2.inl"
#include "worker/kernels/math/math.inl"
#include "worker/kernels/vector/dropout.inl"
#include "worker/kernels/vector/norm.inl"
#include "worker/kernels/vector/pointwise.inl"
#include "worker/kernels/vector/parameters.inl"
#include "worker/kernels/vector/product.inl"
#include "worker/kernels/vector/attention_pack.inl"
#include "worker/kernels/vector/attention.inl"
#include "worker/kernels/vector/table.inl"
// clang-format on

namespace tilewright::kernels {

constexpr VectorLoops kTable = make_table("avx2");
const VectorLoops kAvx2Loops = kTable;

}  // namespace tilewright::kernels
