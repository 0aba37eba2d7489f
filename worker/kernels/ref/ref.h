// The reference kernels: plain sequential loops. They are the expected result in tests and run on
// CPUs without a supported vector instruction set. Sums over a row are in double.
#pragma once

#include "worker/kernels/kernel_table.h"

namespace tilewright::kernels::ref {

template <typename Activation>
void embed_norm_forward(const NormForward<Activation>& a, Range rows);
template <typename Activation>
void add_norm_forward(const NormForward<Activation>& a, Range rows);
template <typename Activation>
void add_norm_backward(const NormBackward<Activation>& a, Range rows, float* d_gamma,
                       float* d_beta);
template <typename Activation>
void dropout_backward(const NormBackward<Activation>& a, Range rows);
template <typename Activation>
void gelu_forward(const Activation* x, std::int64_t count, Activation* y);
template <typename Activation>
void gelu_backward(const Activation* x, const Activation* dy, std::int64_t count, Activation* dx);
template <typename Activation>
void tanh_dropout_forward(const ActivationDropout<Activation>& a, Range rows);
template <typename Activation>
void tanh_dropout_backward(const ActivationDropout<Activation>& a, Range rows);
template <typename Activation>
void relu_dropout_forward(const ActivationDropout<Activation>& a, Range rows);
template <typename Activation>
void relu_dropout_backward(const ActivationDropout<Activation>& a, Range rows);
template <typename Activation>
void dropout_forward(const ActivationDropout<Activation>& a, Range rows);
template <typename Activation>
void softmax_cross_entropy(const Activation* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes, float scale, float smoothing, float* losses,
                           Activation* d_logits);
template <typename Activation>
void squared_error(const Activation* logits, const float* values, std::int64_t rows, float scale,
                   float* losses, Activation* d_logits);
template <typename Activation>
void span_cross_entropy(const AnswerSpans& spans, const Activation* logits, float scale,
                        float* losses, Activation* d_logits);
template <typename Activation>
void attention_forward(const AttentionForward<Activation>& a, const DropoutStream& stream,
                       std::int64_t example, Range heads, Range queries, std::byte* scratch);
template <typename Activation>
void attention_backward(const AttentionBackward<Activation>& a, const DropoutStream& stream,
                        std::int64_t example, Range heads, std::byte* scratch);
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t head_size);

void add_rows(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
              Range columns, float* grad);
void adamw(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
           float* v);
double sum_of_squares(const float* x, std::int64_t count);
void copy(const float* from, std::int64_t count, float* to);

}  // namespace tilewright::kernels::ref
