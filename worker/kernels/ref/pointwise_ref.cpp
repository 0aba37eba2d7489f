// Reference GELU, tanh with dropout and the losses, in plain loops.
#include <cmath>

#include "worker/kernels/ref/ref.h"
#include "worker/kernels/vector/vec_scalar.inl"
// After the vector type:
#include "worker/kernels/math/math.inl"

namespace tilewright::kernels::ref {

using runtime::from_float;
using runtime::to_float;

template <typename Activation>
void gelu_forward(const Activation* x, std::int64_t count, Activation* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<Activation>(gelu(to_float(x[i])));
}

template <typename Activation>
void gelu_backward(const Activation* x, const Activation* dy, std::int64_t count, Activation* dx) {
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = from_float<Activation>(to_float(dy[i]) * gelu_derivative(to_float(x[i])));
  }
}

// Dropout applies to the stored activation, after rounding.
template <typename Activation>
void tanh_dropout_forward(const ActivationDropout<Activation>& a, Range rows) {
  std::uint64_t masks[kMaxHidden / kDropoutBlock];
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    if (a.dropout.threshold != 0) {
      dropout_masks_ref(a.dropout, a.identity.example[t], a.identity.position[t], 0, a.H, masks);
    }
    for (std::int64_t h = 0; h < a.H; ++h) {
      const std::int64_t i = t * a.H + h;
      a.activation_out[i] = from_float<Activation>(tanh(to_float(a.x[i])));
      const bool kept =
          a.dropout.threshold == 0 || (masks[h / kDropoutBlock] >> h % kDropoutBlock & 1) != 0;
      a.out[i] =
          from_float<Activation>(kept ? to_float(a.activation_out[i]) * a.dropout.scale : 0.0f);
    }
  }
}

namespace {

// log_of() takes finite numbers only: the loss of a logit that is not finite is NaN.
float log_of_total(float total) { return std::isfinite(total) ? log_of(total) : total; }

// -log softmax(z)[label] of `count` logits with a distance of `stride`; d = (softmax - onehot) *
// scale.
template <typename Activation>
float cross_entropy(const Activation* z, std::int64_t count, std::int64_t stride,
                    std::int32_t label, float scale, Activation* d) {
  float largest = to_float(z[0]);
  for (std::int64_t c = 1; c < count; ++c) {
    if (to_float(z[c * stride]) > largest) largest = to_float(z[c * stride]);
  }
  double total = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    total += exp_nonpositive(to_float(z[c * stride]) - largest);
  }
  const auto sum = static_cast<float>(total);
  const float loss = log_of_total(sum) - (to_float(z[label * stride]) - largest);
  for (std::int64_t c = 0; c < count; ++c) {
    const float p = exp_nonpositive(to_float(z[c * stride]) - largest) / sum;
    d[c * stride] = from_float<Activation>((p - (c == label ? 1.0f : 0.0f)) * scale);
  }
  return loss;
}

// cross_entropy() of adjacent logits with the target (1 - smoothing) onehot + smoothing / count.
template <typename Activation>
float smoothed_cross_entropy(const Activation* z, std::int64_t count, std::int64_t label,
                             float scale, float smoothing, Activation* d) {
  float largest = to_float(z[0]);
  for (std::int64_t c = 1; c < count; ++c) largest = std::max(largest, to_float(z[c]));
  double total = 0;
  double differences = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    total += exp_nonpositive(to_float(z[c]) - largest);
    differences += to_float(z[c]) - largest;
  }
  const auto sum = static_cast<float>(total);
  const auto mean = static_cast<float>(differences / static_cast<double>(count));
  const float others = smoothing / static_cast<float>(count);
  for (std::int64_t c = 0; c < count; ++c) {
    const float p = exp_nonpositive(to_float(z[c]) - largest) / sum;
    const float target = others + (c == label ? 1.0f - smoothing : 0.0f);
    d[c] = from_float<Activation>((p - target) * scale);
  }
  return log_of_total(sum) -
         ((1.0f - smoothing) * (to_float(z[label]) - largest) + smoothing * mean);
}

}  // namespace

template <typename Activation>
void softmax_cross_entropy(const Activation* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes, float scale, float smoothing, float* losses,
                           Activation* d_logits) {
  for (std::int64_t b = 0; b < rows; ++b) {
    const Activation* z = logits + b * classes;
    Activation* d = d_logits + b * classes;
    // Apart, so that a training without smoothing keeps its bits.
    losses[b] = smoothing == 0.0f
                    ? cross_entropy(z, classes, 1, labels[b], scale, d)
                    : smoothed_cross_entropy(z, classes, labels[b], scale, smoothing, d);
  }
}

template <typename Activation>
void squared_error(const Activation* logits, const float* values, std::int64_t rows, float scale,
                   float* losses, Activation* d_logits) {
  for (std::int64_t b = 0; b < rows; ++b) {
    const float difference = to_float(logits[b]) - values[b];
    losses[b] = difference * difference;
    d_logits[b] = from_float<Activation>(2.0f * difference * scale);
  }
}

template <typename Activation>
void span_cross_entropy(const AnswerSpans& spans, const Activation* logits, float scale,
                        float* losses, Activation* d_logits) {
  for (std::int64_t b = 0; b < spans.B; ++b) {
    const std::int64_t begin = spans.cu_seqlens[b];
    const std::int64_t length = spans.lengths[b];
    const Activation* z = logits + 2 * begin;
    Activation* d = d_logits + 2 * begin;
    const float first = cross_entropy(z, length, 2, spans.first[b], scale / 2, d);
    const float last = cross_entropy(z + 1, length, 2, spans.last[b], scale / 2, d + 1);
    losses[b] = (first + last) / 2;
    for (std::int64_t i = 2 * length; i < 2 * (spans.cu_seqlens[b + 1] - begin); ++i) {
      d[i] = from_float<Activation>(0.0f);
    }
  }
}

template void gelu_forward(const float*, std::int64_t, float*);
template void gelu_forward(const bf16*, std::int64_t, bf16*);
template void gelu_backward(const float*, const float*, std::int64_t, float*);
template void gelu_backward(const bf16*, const bf16*, std::int64_t, bf16*);
template void tanh_dropout_forward(const ActivationDropout<float>&, Range);
template void tanh_dropout_forward(const ActivationDropout<bf16>&, Range);
template void softmax_cross_entropy(const float*, const std::int32_t*, std::int64_t, std::int64_t,
                                    float, float, float*, float*);
template void softmax_cross_entropy(const bf16*, const std::int32_t*, std::int64_t, std::int64_t,
                                    float, float, float*, bf16*);
template void squared_error(const float*, const float*, std::int64_t, float, float*, float*);
template void squared_error(const bf16*, const float*, std::int64_t, float, float*, bf16*);
template void span_cross_entropy(const AnswerSpans&, const float*, float, float*, float*);
template void span_cross_entropy(const AnswerSpans&, const bf16*, float, float*, bf16*);

}  // namespace tilewright::kernels::ref
