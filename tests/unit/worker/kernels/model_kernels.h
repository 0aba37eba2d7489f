// All kernels of a model, for tests: those of an instruction set, or of AMX on emulated tiles.
#pragma once

#include "worker/kernels/gemm/linear.h"
#include "worker/kernels/isa_entries.h"
#include "worker/kernels/launchers.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels::testing {

template <typename Activation>
struct ModelKernels {
  Ops<Activation> ops;
  ParameterOps parameter_ops;
};

template <typename Activation>
ModelKernels<Activation> kernels_of(Isa isa) {
  return {make_ops<Activation>(isa), make_parameter_ops(isa)};
}

// Those of AVX512-BF16, except that linear layers and attention are AMX's on tiles emulated in
// plain C++. The linear layers run on every CPU.
inline ModelKernels<bf16> kernels_of_emulated_amx() {
  auto kernels = kernels_of<bf16>(Isa::kAvx512Bf16);
  fill_gemm_native(kernels.ops, kAmxEmulator);
  fill_attention_launchers(kernels.ops, kAmxEmulatorAttention);
  return kernels;
}

}  // namespace tilewright::kernels::testing
