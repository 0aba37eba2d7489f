// Gathers the loops of one instruction set; the including file gives the table its name.
#include "worker/kernels/ref/ref.h"
#include "worker/kernels/vector/vector_loops.h"

namespace tilewright::kernels {
namespace {

// The loss has as many elements as examples have classes: the reference is good enough.
template <typename T>
constexpr Loops<T> make_loops(const char* name) {
  return {name,
          embed_norm_forward<T>,
          add_norm_forward<T>,
          add_norm_backward<T>,
          dropout_backward<T>,
          gelu_forward<T>,
          gelu_backward<T>,
          tanh_dropout_forward<T>,
          tanh_dropout_backward<T>,
          ref::softmax_cross_entropy<T>,
          attention_forward<T>,
          attention_backward<T>,
          attention_scratch<T>};
}

constexpr VectorLoops make_table(const char* name) {
  return {make_loops<float>(name),
          make_loops<bf16>(name),
          {name, norm_parameters, add_rows, add, adamw, sum_of_squares, dropout_masks}};
}

}  // namespace
}  // namespace tilewright::kernels
