// Which engine serves which instruction set.
#include "worker/kernels/gemm/gemm.h"
#include "worker/kernels/gemm/linear.h"
#include "worker/kernels/gemm/onednn.h"
#include "worker/kernels/gemm/ref.h"

namespace tilewright::kernels {

template <>
void fill_gemm<float>(Ops<float>& ops, Isa isa, GemmBackend backend) {
  if (backend == GemmBackend::kOneDnn) return fill_gemm_onednn(ops);
  switch (isa) {
    case Isa::kRef:
      return fill_gemm_ref(ops);
    case Isa::kAvx2:
      return Linear<float, kAvx2Float>::fill(ops);
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return Linear<float, kAvx512Float>::fill(ops);
  }
}

template <>
void fill_gemm<bf16>(Ops<bf16>& ops, Isa isa, GemmBackend backend) {
  if (backend == GemmBackend::kOneDnn) return fill_gemm_onednn(ops);
  switch (isa) {
    case Isa::kRef:
      return fill_gemm_ref(ops);
    case Isa::kAvx2:
      return Linear<bf16, kAvx2Bf16>::fill(ops);
    case Isa::kAvx512:
      return Linear<bf16, kAvx512Widened>::fill(ops);
    case Isa::kAvx512Bf16:
      return Linear<bf16, kAvx512Bf16>::fill(ops);
    case Isa::kAmx:
      return Linear<bf16, kAmx>::fill(ops);
  }
}

}  // namespace tilewright::kernels
