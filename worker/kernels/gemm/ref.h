// Linear layers in plain loops: the oracle of the others and the portable path.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

template <typename T>
void fill_gemm_ref(Ops<T>& ops);
extern template void fill_gemm_ref<float>(Ops<float>&);
extern template void fill_gemm_ref<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
