#include "worker/kernels/gemm/gemm.h"

namespace tilewright::kernels {

template <typename T>
void fill_gemm(Ops<T>& /*ops*/, Isa /*isa*/, GemmBackend /*backend*/) {}

template void fill_gemm<float>(Ops<float>&, Isa, GemmBackend);
template void fill_gemm<bf16>(Ops<bf16>&, Isa, GemmBackend);

}  // namespace tilewright::kernels
