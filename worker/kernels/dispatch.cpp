// Makes the Ops of an instruction set from its row of the ISA table.
#include "worker/kernels/gemm/linear.h"
#include "worker/kernels/gemm/onednn.h"
#include "worker/kernels/gemm/ref.h"
#include "worker/kernels/isa_table.h"
#include "worker/kernels/launchers.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {
namespace {

template <typename Activation>
void fill_gemm(Ops<Activation>& ops, const Engine<Activation>& engine, GemmBackend backend) {
  if (backend == GemmBackend::kOneDnn) return fill_gemm_onednn(ops);
  if (engine.forward == nullptr) return fill_gemm_ref(ops);
  fill_gemm_native(ops, engine);
}

}  // namespace

template <typename Activation>
Ops<Activation> make_ops(Isa isa, GemmBackend backend) {
  const IsaRow& row = isa_row(isa);
  Ops<Activation> ops;
  fill_gemm(ops, *row.gemm<Activation>().engine, backend);
  fill_row_launchers(ops, row.kernels->of<Activation>());
  fill_attention_launchers(ops, row.kernels->of<Activation>());
  fill_shard_launchers(ops, row.kernels->of<Activation>());
  return ops;
}
template Ops<float> make_ops<float>(Isa, GemmBackend);
template Ops<bf16> make_ops<bf16>(Isa, GemmBackend);

ParameterOps make_parameter_ops(Isa isa) {
  ParameterOps ops;
  fill_parameter_launchers(ops, isa_row(isa).kernels->parameters);
  return ops;
}

}  // namespace tilewright::kernels
