// Builds the kernel tables of one instruction set.
#include "worker/kernels/isa_entries.h"
#include "worker/kernels/ref/ref.h"

namespace tilewright::kernels {
namespace {

// Losses are too small to vectorize (examples x classes, tokens x 2), so they use the reference.
template <typename Activation>
constexpr KernelTable<Activation> make_kernel_table(const char* name) {
  return {name,
          embed_norm_forward<Activation>,
          add_norm_forward<Activation>,
          add_norm_backward<Activation>,
          dropout_backward<Activation>,
          gelu_forward<Activation>,
          gelu_backward<Activation>,
          activation_dropout_forward<Tanh, Activation>,
          activation_dropout_backward<Tanh, Activation>,
          activation_dropout_forward<Relu, Activation>,
          activation_dropout_backward<Relu, Activation>,
          dropout_forward<Activation>,
          ref::softmax_cross_entropy<Activation>,
          ref::squared_error<Activation>,
          ref::span_cross_entropy<Activation>,
          attention_forward<Activation>,
          attention_backward<Activation>,
          attention_scratch<Activation>};
}

constexpr KernelTables make_kernel_tables(const char* name) {
  return {make_kernel_table<float>(name),
          make_kernel_table<bf16>(name),
          {name, add_rows, adamw, sum_of_squares, copy, dropout_masks}};
}

}  // namespace
}  // namespace tilewright::kernels
