// The single-threaded loops under the kernels of ops.h, one table for each instruction set. What
// concerns threads, shards and shapes stands once above them (norm/norm.cpp and its like); these
// hold the arithmetic. Every loop gives an element the same bits wherever its range begins or ends.
#pragma once

#include "worker/kernels/dropout/dropout.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// Longest row of embed_norm, add_norm and tanh_dropout: sizes the buffer of dropout masks.
inline constexpr std::int64_t kMaxHidden = 16384;

// Arguments of embed_norm_forward and add_norm_forward; see ops.h for the shapes.
template <typename T>
struct NormForward {
  const std::int32_t* ids = nullptr;  // embeddings; null: x and residual
  const std::int32_t* positions = nullptr;
  const std::int32_t* types = nullptr;
  const float* word = nullptr;
  const float* position = nullptr;
  const float* type = nullptr;
  const T* x = nullptr;
  const float* residual = nullptr;
  std::int64_t H = 0;
  LayerNorm norm;
  DropoutStream dropout;
  RowIdentity identity;
  float* sum = nullptr;
  float* stats = nullptr;
  float* y32 = nullptr;
  T* y = nullptr;
};

template <typename T>
struct NormBackward {
  float* dy32 = nullptr;
  const T* dy_branch = nullptr;
  const float* sum = nullptr;
  const float* stats = nullptr;
  std::int64_t H = 0;
  LayerNorm norm;
  DropoutStream dropout;
  RowIdentity identity;
  float* d_sum = nullptr;
  T* dx = nullptr;
};

template <typename T>
struct TanhDropout {
  const T* x = nullptr;           // forward
  const T* dy = nullptr;          // backward
  const T* activation = nullptr;  // backward
  std::int64_t H = 0;
  DropoutStream dropout;
  RowIdentity identity;
  T* activation_out = nullptr;  // forward
  T* out = nullptr;             // y or dx
};

// A half-open range of rows or columns.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <typename T>
struct Loops {
  const char* name = "";
  void (*embed_norm_forward)(const NormForward<T>& a, Range rows) = nullptr;
  void (*add_norm_forward)(const NormForward<T>& a, Range rows) = nullptr;
  void (*add_norm_backward)(const NormBackward<T>& a, Range rows) = nullptr;
  void (*dropout_backward)(const NormBackward<T>& a, Range rows) = nullptr;
  void (*gelu_forward)(const T* x, std::int64_t count, T* y) = nullptr;
  void (*gelu_backward)(const T* x, const T* dy, std::int64_t count, T* dx) = nullptr;
  void (*tanh_dropout_forward)(const TanhDropout<T>& a, Range rows) = nullptr;
  void (*tanh_dropout_backward)(const TanhDropout<T>& a, Range rows) = nullptr;
  void (*softmax_cross_entropy)(const T* logits, const std::int32_t* labels, std::int64_t rows,
                                std::int64_t classes, float scale, float* losses,
                                T* d_logits) = nullptr;
  // One example and head; scratch of attention_scratch bytes belongs to this call alone.
  void (*attention_forward)(const AttentionForward<T>& a, const DropoutStream& stream,
                            std::int64_t example, std::int64_t head, std::byte* scratch) = nullptr;
  void (*attention_backward)(const AttentionBackward<T>& a, const DropoutStream& stream,
                             std::int64_t example, std::int64_t head, std::byte* scratch) = nullptr;
  std::size_t (*attention_scratch)(std::int64_t max_seqlen, std::int64_t head_size) = nullptr;
};

// What does not depend on the type of activations.
struct ParameterLoops {
  const char* name = "";
  // d_gamma and d_beta of `columns` += the rows in rising order.
  void (*norm_parameters)(const float* dy, const float* sum, const float* stats, std::int64_t H,
                          Range rows, Range columns, float* d_gamma, float* d_beta) = nullptr;
  // grad[0 .. columns) += the `columns` of d_sum's rows[0 .. count), in this order.
  void (*add_rows)(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
                   Range columns, float* grad) = nullptr;
  // a += b.
  void (*add)(float* a, const float* b, std::int64_t count) = nullptr;
  void (*adamw)(const AdamW& a, std::int64_t count, const float* gradient, float* parameter,
                float* m, float* v) = nullptr;
  double (*sum_of_squares)(const float* x, std::int64_t count) = nullptr;
  // As dropout_masks_ref.
  void (*dropout_masks)(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                        std::int32_t head, std::int64_t columns, std::uint64_t* masks) = nullptr;
};

// The tables; kAmx has no loops of its own and takes those of kAvx512Bf16.
template <typename T>
const Loops<T>& loops(Isa isa);
template <>
const Loops<float>& loops<float>(Isa isa);
template <>
const Loops<bf16>& loops<bf16>(Isa isa);
const ParameterLoops& parameter_loops(Isa isa);

// Fills everything of the table but the linear layers.
template <typename T>
void fill_loops(Ops<T>& ops, Isa isa);
extern template void fill_loops<float>(Ops<float>&, Isa);
extern template void fill_loops<bf16>(Ops<bf16>&, Isa);
void fill_loops(ParameterOps& ops, Isa isa);

}  // namespace tilewright::kernels
