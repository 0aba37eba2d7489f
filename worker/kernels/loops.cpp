// Which loops an instruction set has, and how a table of kernels is filled with the drivers above
// them.
#include "worker/kernels/loops.h"

#include "worker/kernels/drivers.h"
#include "worker/kernels/ref/ref.h"
#include "worker/kernels/vector/vector_loops.h"

namespace tilewright::kernels {
namespace {

template <typename T>
constexpr Loops<T> kRefLoops = {
    "ref",
    ref::embed_norm_forward<T>,
    ref::add_norm_forward<T>,
    ref::add_norm_backward<T>,
    ref::dropout_backward<T>,
    ref::gelu_forward<T>,
    ref::gelu_backward<T>,
    ref::tanh_dropout_forward<T>,
    ref::tanh_dropout_backward<T>,
    ref::softmax_cross_entropy<T>,
    ref::attention_forward<T>,
    ref::attention_backward<T>,
    ref::attention_scratch,
};

constexpr ParameterLoops kRefParameterLoops = {
    "ref",      ref::norm_parameters, ref::add_rows,     ref::add,
    ref::adamw, ref::sum_of_squares,  dropout_masks_ref,
};

template <typename T, Isa kIsa>
void fill(Ops<T>& ops) {
  fill_row_drivers<T, kIsa>(ops);
  fill_attention_drivers<T, kIsa>(ops);
  fill_shard_drivers<T, kIsa>(ops);
}

}  // namespace

template <>
const Loops<float>& loops<float>(Isa isa) {
  switch (isa) {
    case Isa::kRef:
      break;
    case Isa::kAvx2:
      return kAvx2Loops.fp32;
    case Isa::kAvx512:
      return kAvx512Loops.fp32;
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return kAvx512Bf16Loops.fp32;
  }
  return kRefLoops<float>;
}

template <>
const Loops<bf16>& loops<bf16>(Isa isa) {
  switch (isa) {
    case Isa::kRef:
      break;
    case Isa::kAvx2:
      return kAvx2Loops.half;
    case Isa::kAvx512:
      return kAvx512Loops.half;
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return kAvx512Bf16Loops.half;
  }
  return kRefLoops<bf16>;
}

const ParameterLoops& parameter_loops(Isa isa) {
  switch (isa) {
    case Isa::kRef:
      break;
    case Isa::kAvx2:
      return kAvx2Loops.parameters;
    case Isa::kAvx512:
      return kAvx512Loops.parameters;
    case Isa::kAvx512Bf16:
    case Isa::kAmx:
      return kAvx512Bf16Loops.parameters;
  }
  return kRefParameterLoops;
}

const char* loops_name(Isa isa) { return parameter_loops(isa).name; }

template <typename T>
void fill_loops(Ops<T>& ops, Isa isa) {
  switch (isa) {
    case Isa::kRef:
      return fill<T, Isa::kRef>(ops);
    case Isa::kAvx2:
      return fill<T, Isa::kAvx2>(ops);
    case Isa::kAvx512:
      return fill<T, Isa::kAvx512>(ops);
    case Isa::kAvx512Bf16:
      return fill<T, Isa::kAvx512Bf16>(ops);
    case Isa::kAmx:
      return fill<T, Isa::kAmx>(ops);
  }
}
template void fill_loops<float>(Ops<float>&, Isa);
template void fill_loops<bf16>(Ops<bf16>&, Isa);

void fill_loops(ParameterOps& ops, Isa isa) {
  switch (isa) {
    case Isa::kRef:
      return fill_shard_drivers<Isa::kRef>(ops);
    case Isa::kAvx2:
      return fill_shard_drivers<Isa::kAvx2>(ops);
    case Isa::kAvx512:
      return fill_shard_drivers<Isa::kAvx512>(ops);
    case Isa::kAvx512Bf16:
      return fill_shard_drivers<Isa::kAvx512Bf16>(ops);
    case Isa::kAmx:
      return fill_shard_drivers<Isa::kAmx>(ops);
  }
}

}  // namespace tilewright::kernels
