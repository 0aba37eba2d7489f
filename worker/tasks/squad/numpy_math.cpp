#include "worker/tasks/squad/numpy_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tilewright::tasks::squad {
namespace {

// The coefficients of numpy/core/src/umath: exp(r) ~ P(r) / Q(r) for |r| <= ln(2) / 2, lowest
// degree first, and ln(2) in two parts (Cody and Waite).
constexpr std::array<float, 6> kNumerator = {
    9.999999999980870924916e-01F, 7.257664613233124478488e-01F, 2.473615434895520810817e-01F,
    5.114512081637298353406e-02F, 6.757896990527504603057e-03F, 5.082762527590693718096e-04F};
constexpr std::array<float, 3> kDenominator = {1.0F, -2.742335390411667452936e-01F,
                                               2.159509375685829852307e-02F};
constexpr float kLog2E = 1.442695040888963407359924681001892137F;
constexpr float kLn2High = 6.93145752e-1F;
constexpr float kLn2Low = 1.42860677e-6F;
constexpr float kUnderflow = -103.97208404541015625F;  // exp of less is 0

template <std::size_t N>
float polynomial(const std::array<float, N>& coefficients, float x) {
  float value = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) value = std::fma(value, x, coefficients[i]);
  return value;
}

// Descending, with NaN first: a strict weak order of all floats.
bool is_before(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

}  // namespace

float numpy_exp(float x) {
  if (std::isnan(x)) return x;
  if (x < kUnderflow) return 0;
  const float exponent = std::nearbyint(x * kLog2E);
  const float r = std::fma(exponent, -kLn2Low, std::fma(exponent, -kLn2High, x));
  return std::ldexp(polynomial(kNumerator, r) / polynomial(kDenominator, r),
                    static_cast<int>(exponent));
}

float numpy_sum(std::span<const float> values) {
  constexpr std::size_t kBlock = 128;
  constexpr std::size_t kLanes = 8;
  if (values.size() < kLanes) {
    // NumPy begins with -0.0, which changes no sum of probabilities.
    return std::accumulate(values.begin(), values.end(), 0.0F);
  }
  if (values.size() > kBlock) {
    std::size_t half = values.size() / 2;
    half -= half % kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<float, kLanes> sums;
  std::copy_n(values.begin(), kLanes, sums.begin());
  const std::size_t whole = values.size() - values.size() % kLanes;
  for (std::size_t i = kLanes; i < whole; ++i) sums[i % kLanes] += values[i];
  const float sum =
      ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(whole), values.end(), sum);
}

std::vector<float> numpy_softmax(std::span<const float> scores) {
  const float largest = *std::min_element(scores.begin(), scores.end(), is_before);
  std::vector<float> values;
  values.reserve(scores.size());
  for (const float score : scores) values.push_back(numpy_exp(score - largest));
  const float sum = numpy_sum(values);
  for (float& value : values) value /= sum;
  return values;
}

std::vector<std::size_t> largest_indices(std::span<const float> values, std::size_t count) {
  std::vector<std::size_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  const auto kept = static_cast<std::ptrdiff_t>(std::min(count, indices.size()));
  std::partial_sort(indices.begin(), indices.begin() + kept, indices.end(),
                    [&](std::size_t a, std::size_t b) {
                      if (is_before(values[a], values[b])) return true;
                      return !is_before(values[b], values[a]) && a > b;
                    });
  indices.resize(static_cast<std::size_t>(kept));
  return indices;
}

}  // namespace tilewright::tasks::squad
