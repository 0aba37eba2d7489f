// Tables of single-threaded kernels, one per instruction set: the arithmetic below the kernels of
// ops.h. The launchers (launchers.h) add threads, shards and shape checks. Invariant: the bits of
// an element do not depend on where the range passed to a kernel begins or ends.
#pragma once

#include "worker/kernels/dropout/dropout.h"
#include "worker/kernels/ops.h"
#include "worker/runtime/range.h"

namespace tilewright::kernels {

// Arguments of embed_norm_forward (ids to type) and add_norm_forward (x, residual); shapes in
// ops.h.
template <typename Activation>
struct NormForward {
  const std::int32_t* ids = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* types = nullptr;
  const float* word = nullptr;
  const float* position = nullptr;
  const float* type = nullptr;
  const Activation* x = nullptr;
  Residual residual;
  std::int64_t H = 0;
  LayerNorm norm;
  DropoutStream dropout;
  RowIdentity identity;
  float* sum = nullptr;
  float* stats = nullptr;
  float* y32 = nullptr;  // of embed_norm_forward
  Activation* y = nullptr;
};

template <typename Activation>
struct NormBackward {
  float* d_stream = nullptr;
  const Activation* dy_branch = nullptr;
  const float* sum = nullptr;
  const float* stats = nullptr;
  std::int64_t H = 0;
  LayerNorm norm;
  DropoutStream dropout;
  RowIdentity identity;
  Activation* dx = nullptr;
};

// Arguments of tanh_dropout, relu_dropout and dropout_forward; shapes in ops.h.
template <typename Activation>
struct ActivationDropout {
  const Activation* x = nullptr;           // forward
  const Activation* dy = nullptr;          // backward
  const Activation* activation = nullptr;  // backward
  std::int64_t H = 0;
  DropoutStream dropout;
  RowIdentity identity;
  Activation* activation_out = nullptr;  // forward, not of dropout_forward
  Activation* out = nullptr;             // y or dx
};

using runtime::Range;  // of rows or columns

template <typename Activation>
struct KernelTable {
  const char* name = "";
  void (*embed_norm_forward)(const NormForward<Activation>& a, Range rows) = nullptr;
  void (*add_norm_forward)(const NormForward<Activation>& a, Range rows) = nullptr;
  // d_gamma[H] and d_beta[H]: overwritten with the sums over the rows, in ascending order.
  void (*add_norm_backward)(const NormBackward<Activation>& a, Range rows, float* d_gamma,
                            float* d_beta) = nullptr;
  void (*dropout_backward)(const NormBackward<Activation>& a, Range rows) = nullptr;
  void (*gelu_forward)(const Activation* x, std::int64_t count, Activation* y) = nullptr;
  void (*gelu_backward)(const Activation* x, const Activation* dy, std::int64_t count,
                        Activation* dx) = nullptr;
  void (*tanh_dropout_forward)(const ActivationDropout<Activation>& a, Range rows) = nullptr;
  void (*tanh_dropout_backward)(const ActivationDropout<Activation>& a, Range rows) = nullptr;
  void (*relu_dropout_forward)(const ActivationDropout<Activation>& a, Range rows) = nullptr;
  void (*relu_dropout_backward)(const ActivationDropout<Activation>& a, Range rows) = nullptr;
  void (*dropout_forward)(const ActivationDropout<Activation>& a, Range rows) = nullptr;
  void (*softmax_cross_entropy)(const Activation* logits, const std::int32_t* labels,
                                std::int64_t rows, std::int64_t classes, float scale,
                                float smoothing, float* losses, Activation* d_logits) = nullptr;
  void (*squared_error)(const Activation* logits, const float* values, std::int64_t rows,
                        float scale, float* losses, Activation* d_logits) = nullptr;
  void (*span_cross_entropy)(const AnswerSpans& spans, const Activation* logits, float scale,
                             float* losses, Activation* d_logits) = nullptr;
  // Some heads of one example that has tokens. Forward: for some queries; queries.begin is a
  // multiple of kDropoutBlock, and queries.end is one too or the length. `scratch`:
  // attention_scratch bytes, not shared with concurrent calls.
  void (*attention_forward)(const AttentionForward<Activation>& a, const DropoutStream& stream,
                            std::int64_t example, Range heads, Range queries,
                            std::byte* scratch) = nullptr;
  void (*attention_backward)(const AttentionBackward<Activation>& a, const DropoutStream& stream,
                             std::int64_t example, Range heads, std::byte* scratch) = nullptr;
  std::size_t (*attention_scratch)(std::int64_t max_seqlen, std::int64_t head_size) = nullptr;
};

// Kernels that do not depend on the activation type.
struct ParameterKernelTable {
  const char* name = "";
  // grad += `columns` of the rows rows[0 .. count) of d_sum [T, H], in this order.
  void (*add_rows)(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
                   Range columns, float* grad) = nullptr;
  void (*adamw)(const AdamW& a, std::int64_t count, const float* gradient, float* parameter,
                float* m, float* v) = nullptr;
  double (*sum_of_squares)(const float* x, std::int64_t count) = nullptr;
  void (*copy)(const float* from, std::int64_t count, float* to) = nullptr;
  // As dropout_masks_ref.
  void (*dropout_masks)(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                        std::int32_t head, std::int64_t columns, std::uint64_t* masks) = nullptr;
};

// All kernels of an instruction set except the linear layers.
struct KernelTables {
  KernelTable<float> fp32;
  KernelTable<bf16> bfloat16;
  ParameterKernelTable parameters;

  template <typename Activation>
  const KernelTable<Activation>& of() const;
};
template <>
inline const KernelTable<float>& KernelTables::of<float>() const {
  return fp32;
}
template <>
inline const KernelTable<bf16>& KernelTables::of<bf16>() const {
  return bfloat16;
}

}  // namespace tilewright::kernels
