// Reference linear layers in plain loops: the expected result in tests and the portable path.
#pragma once

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

template <typename Activation>
void fill_gemm_ref(Ops<Activation>& ops);
extern template void fill_gemm_ref<float>(Ops<float>&);
extern template void fill_gemm_ref<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
