// The table of the reference kernels.
#include "worker/kernels/ref/ref.h"

#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

template <typename Activation>
constexpr KernelTable<Activation> make_kernel_table() {
  return {"ref",
          ref::embed_norm_forward<Activation>,
          ref::add_norm_forward<Activation>,
          ref::add_norm_backward<Activation>,
          ref::dropout_backward<Activation>,
          ref::gelu_forward<Activation>,
          ref::gelu_backward<Activation>,
          ref::tanh_dropout_forward<Activation>,
          ref::tanh_dropout_backward<Activation>,
          ref::relu_dropout_forward<Activation>,
          ref::relu_dropout_backward<Activation>,
          ref::dropout_forward<Activation>,
          ref::softmax_cross_entropy<Activation>,
          ref::squared_error<Activation>,
          ref::span_cross_entropy<Activation>,
          ref::attention_forward<Activation>,
          ref::attention_backward<Activation>,
          ref::attention_scratch};
}

}  // namespace

constinit const KernelTables kRefKernels = {
    make_kernel_table<float>(),
    make_kernel_table<bf16>(),
    {"ref", ref::add_rows, ref::adamw, ref::sum_of_squares, ref::copy, dropout_masks_ref}};

}  // namespace tilewright::kernels
