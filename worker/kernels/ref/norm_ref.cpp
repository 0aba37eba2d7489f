// Reference layer norm with residual, embeddings, ReLU and dropout, in plain loops.
#include <cmath>

#include "worker/kernels/ref/ref.h"

namespace tilewright::kernels::ref {
namespace {

using runtime::from_float;
using runtime::to_float;

// Dropout masks of one row.
class RowMasks {
 public:
  RowMasks(const DropoutStream& stream, RowIdentity identity, std::int64_t columns)
      : stream_(stream), identity_(identity), columns_(columns) {}
  void draw(std::int64_t row) {
    if (stream_.threshold == 0) return;
    dropout_masks_ref(stream_, identity_.example[row], identity_.position[row], 0, columns_, bits_);
  }
  float apply(std::int64_t column, float x) const {
    if (stream_.threshold == 0) return x;
    return (bits_[column / kDropoutBlock] >> column % kDropoutBlock & 1) != 0 ? x * stream_.scale
                                                                              : 0.0f;
  }

 private:
  const DropoutStream& stream_;
  RowIdentity identity_;
  std::int64_t columns_;
  std::uint64_t bits_[kMaxHidden / kDropoutBlock];
};

struct Statistics {
  float mean;
  float rstd;
};

Statistics statistics(const float* x, std::int64_t H, float epsilon) {
  double total = 0;
  for (std::int64_t h = 0; h < H; ++h) total += x[h];
  const double mean = total / static_cast<double>(H);
  double squares = 0;
  for (std::int64_t h = 0; h < H; ++h) squares += (x[h] - mean) * (x[h] - mean);
  const double variance = squares / static_cast<double>(H);
  return {static_cast<float>(mean), static_cast<float>(1.0 / std::sqrt(variance + epsilon))};
}

float normalised(float x, Statistics s) { return (x - s.mean) * s.rstd; }

}  // namespace

template <typename Activation>
void embed_norm_forward(const NormForward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    float* sum = a.sum + t * a.H;
    for (std::int64_t h = 0; h < a.H; ++h) {
      sum[h] = a.word[a.ids[t] * a.H + h] + a.position[a.positions[t] * a.H + h];
      if (a.type != nullptr) sum[h] += a.type[a.types[t] * a.H + h];
    }
    const Statistics s = statistics(sum, a.H, a.norm.epsilon);
    a.stats[2 * t] = s.mean;
    a.stats[2 * t + 1] = s.rstd;
    masks.draw(t);
    for (std::int64_t h = 0; h < a.H; ++h) {
      const float normed = normalised(sum[h], s) * a.norm.gamma[h] + a.norm.beta[h];
      a.y32[t * a.H + h] = masks.apply(h, normed);
      a.y[t * a.H + h] = from_float<Activation>(a.y32[t * a.H + h]);
    }
  }
}

template <typename Activation>
void add_norm_forward(const NormForward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    float* sum = a.sum + t * a.H;
    const Residual& r = a.residual;
    for (std::int64_t h = 0; h < a.H; ++h) {
      float residual = r.values[t * a.H + h];
      if (r.stats != nullptr) {
        residual = normalised(residual, {r.stats[2 * t], r.stats[2 * t + 1]}) * r.norm.gamma[h] +
                   r.norm.beta[h];
      }
      sum[h] = residual + masks.apply(h, to_float(a.x[t * a.H + h]));
    }
    const Statistics s = statistics(sum, a.H, a.norm.epsilon);
    a.stats[2 * t] = s.mean;
    a.stats[2 * t + 1] = s.rstd;
    for (std::int64_t h = 0; h < a.H; ++h) {
      a.y[t * a.H + h] =
          from_float<Activation>(normalised(sum[h], s) * a.norm.gamma[h] + a.norm.beta[h]);
    }
  }
}

// With x^ = (sum - mean) / deviation (standard deviation) and g = dy gamma:
// d_sum = (g - mean(g) - x^ mean(g x^)) / deviation, d_gamma = sum of dy x^, d_beta = sum of dy.
template <typename Activation>
void add_norm_backward(const NormBackward<Activation>& a, Range rows, float* d_gamma,
                       float* d_beta) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t h = 0; h < a.H; ++h) d_gamma[h] = d_beta[h] = 0.0f;
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    const Statistics s = {a.stats[2 * t], a.stats[2 * t + 1]};
    float* dy = a.d_stream + t * a.H;
    const float* sum = a.sum + t * a.H;
    double g_total = 0;
    double gx_total = 0;
    for (std::int64_t h = 0; h < a.H; ++h) {
      if (a.dy_branch != nullptr) dy[h] += to_float(a.dy_branch[t * a.H + h]);
      const double g = static_cast<double>(dy[h]) * a.norm.gamma[h];
      g_total += g;
      gx_total += g * normalised(sum[h], s);
      d_gamma[h] += dy[h] * normalised(sum[h], s);
      d_beta[h] += dy[h];
    }
    const auto g_mean = static_cast<float>(g_total / static_cast<double>(a.H));
    const auto gx_mean = static_cast<float>(gx_total / static_cast<double>(a.H));
    masks.draw(t);
    for (std::int64_t h = 0; h < a.H; ++h) {
      const float g = dy[h] * a.norm.gamma[h];
      dy[h] = (g - g_mean - normalised(sum[h], s) * gx_mean) * s.rstd;
      if (a.dx != nullptr) a.dx[t * a.H + h] = from_float<Activation>(masks.apply(h, dy[h]));
    }
  }
}

template <typename Activation>
void dropout_backward(const NormBackward<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for (std::int64_t i = t * a.H; i < (t + 1) * a.H; ++i) {
      const float branch = a.dy_branch == nullptr ? 0.0f : to_float(a.dy_branch[i]);
      a.d_stream[i] = masks.apply(i - t * a.H, a.d_stream[i] + branch);
    }
  }
}

template <typename Activation>
void tanh_dropout_backward(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for (std::int64_t i = t * a.H; i < (t + 1) * a.H; ++i) {
      const float y = to_float(a.activation[i]);
      const float d = masks.apply(i - t * a.H, to_float(a.dy[i]));
      a.out[i] = from_float<Activation>(d * (1.0f - y * y));
    }
  }
}

template <typename Activation>
void relu_dropout_backward(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for (std::int64_t i = t * a.H; i < (t + 1) * a.H; ++i) {
      const float d = masks.apply(i - t * a.H, to_float(a.dy[i]));
      a.out[i] = from_float<Activation>(to_float(a.activation[i]) > 0 ? d : 0.0f);
    }
  }
}

template <typename Activation>
void relu_dropout_forward(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for (std::int64_t i = t * a.H; i < (t + 1) * a.H; ++i) {
      const float x = to_float(a.x[i]);
      const float y = x < 0 ? 0.0f : x;  // NaN remains NaN
      a.activation_out[i] = from_float<Activation>(y);
      a.out[i] = from_float<Activation>(masks.apply(i - t * a.H, y));
    }
  }
}

template <typename Activation>
void dropout_forward(const ActivationDropout<Activation>& a, Range rows) {
  RowMasks masks(a.dropout, a.identity, a.H);
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    masks.draw(t);
    for (std::int64_t i = t * a.H; i < (t + 1) * a.H; ++i) {
      a.out[i] = from_float<Activation>(masks.apply(i - t * a.H, to_float(a.x[i])));
    }
  }
}

template void embed_norm_forward(const NormForward<float>&, Range);
template void embed_norm_forward(const NormForward<bf16>&, Range);
template void add_norm_forward(const NormForward<float>&, Range);
template void add_norm_forward(const NormForward<bf16>&, Range);
template void add_norm_backward(const NormBackward<float>&, Range, float*, float*);
template void add_norm_backward(const NormBackward<bf16>&, Range, float*, float*);
template void dropout_backward(const NormBackward<float>&, Range);
template void dropout_backward(const NormBackward<bf16>&, Range);
template void tanh_dropout_backward(const ActivationDropout<float>&, Range);
template void tanh_dropout_backward(const ActivationDropout<bf16>&, Range);
template void relu_dropout_backward(const ActivationDropout<float>&, Range);
template void relu_dropout_backward(const ActivationDropout<bf16>&, Range);
template void relu_dropout_forward(const ActivationDropout<float>&, Range);
template void relu_dropout_forward(const ActivationDropout<bf16>&, Range);
template void dropout_forward(const ActivationDropout<float>&, Range);
template void dropout_forward(const ActivationDropout<bf16>&, Range);

}  // namespace tilewright::kernels::ref
