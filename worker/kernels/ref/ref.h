// The reference loops: plain, sequential, the oracle of every other version and the path of a CPU
// without any of the vector instruction sets. Sums of a row are taken in double.
#pragma once

#include "worker/kernels/loops.h"

namespace tilewright::kernels::ref {

template <typename T>
void embed_norm_forward(const NormForward<T>& a, Range rows);
template <typename T>
void add_norm_forward(const NormForward<T>& a, Range rows);
template <typename T>
void add_norm_backward(const NormBackward<T>& a, Range rows);
template <typename T>
void dropout_backward(const NormBackward<T>& a, Range rows);
template <typename T>
void gelu_forward(const T* x, std::int64_t count, T* y);
template <typename T>
void gelu_backward(const T* x, const T* dy, std::int64_t count, T* dx);
template <typename T>
void tanh_dropout_forward(const TanhDropout<T>& a, Range rows);
template <typename T>
void tanh_dropout_backward(const TanhDropout<T>& a, Range rows);
template <typename T>
void softmax_cross_entropy(const T* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes, float scale, float* losses, T* d_logits);
template <typename T>
void attention_forward(const AttentionForward<T>& a, const DropoutStream& stream,
                       std::int64_t example, std::int64_t head, std::byte* scratch);
template <typename T>
void attention_backward(const AttentionBackward<T>& a, const DropoutStream& stream,
                        std::int64_t example, std::int64_t head, std::byte* scratch);
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size);

void norm_parameters(const float* dy, const float* sum, const float* stats, std::int64_t H,
                     Range rows, Range columns, float* d_gamma, float* d_beta);
void add_rows(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
              Range columns, float* grad);
void add(float* a, const float* b, std::int64_t count);
void adamw(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
           float* v);
double sum_of_squares(const float* x, std::int64_t count);

}  // namespace tilewright::kernels::ref
