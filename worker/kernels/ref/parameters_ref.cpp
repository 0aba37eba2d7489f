// Reference AdamW, sum of squares, copies and sums of rows, in plain loops.
#include <algorithm>
#include <cmath>

#include "worker/kernels/ref/ref.h"

namespace tilewright::kernels::ref {

void add_rows(const float* d_sum, std::int64_t H, const std::int32_t* rows, std::int64_t count,
              Range columns, float* grad) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = d_sum + rows[i] * H;
    for (std::int64_t h = columns.begin; h < columns.end; ++h) grad[h - columns.begin] += row[h];
  }
}

void adamw(const AdamW& a, std::int64_t count, const float* gradient, float* parameter, float* m,
           float* v) {
  const float minus_decay = 0.0f - a.learning_rate * a.weight_decay;  // never -0
  const float rate = a.learning_rate / a.correction1;
  const float root_correction2 = std::sqrt(a.correction2);
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient == nullptr ? 0.0f : gradient[i] * a.gradient_scale;
    const float p = parameter[i] + minus_decay * parameter[i];
    m[i] = m[i] + (1.0f - a.beta1) * (g - m[i]);
    v[i] = a.beta2 * v[i] + (1.0f - a.beta2) * (g * g);
    parameter[i] = p - rate * m[i] / (std::sqrt(v[i]) / root_correction2 + a.epsilon);
  }
}

// Element i is added to partial sum i mod 16; then the upper half of the partial sums is added to
// the lower half until one is left. The square of a float is exact in double, so the bits are the
// same on every instruction set.
double sum_of_squares(const float* x, std::int64_t count) {
  double partial[16] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    partial[i % 16] += value * value;
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

void copy(const float* from, std::int64_t count, float* to) { std::copy_n(from, count, to); }

}  // namespace tilewright::kernels::ref
