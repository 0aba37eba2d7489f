// The one place where an instruction set becomes a table of kernels: each family fills its part.
#include "worker/kernels/gemm/gemm.h"
#include "worker/kernels/loops.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {

template <typename T>
Ops<T> make_ops(Isa isa, GemmBackend backend) {
  Ops<T> ops;
  ops.isa = isa;
  fill_gemm(ops, isa, backend);
  fill_loops(ops, isa);
  return ops;
}
template Ops<float> make_ops<float>(Isa, GemmBackend);
template Ops<bf16> make_ops<bf16>(Isa, GemmBackend);

ParameterOps make_parameter_ops(Isa isa) {
  ParameterOps ops;
  ops.isa = isa;
  fill_loops(ops, isa);
  return ops;
}

}  // namespace tilewright::kernels
