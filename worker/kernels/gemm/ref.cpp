// Products are added one by one, in rising order, to one fp32 accumulator an element. A product of
// two bf16 is exact in fp32, so multiplying and adding here gives the bits of the widened FMA of
// AVX2 and AVX-512; in fp32 they differ by the product's rounding.
#include "worker/kernels/gemm/ref.h"

#include <algorithm>

namespace tilewright::kernels {
namespace {

using runtime::from_float;
using runtime::to_float;

constexpr std::int64_t kColumns = 64;  // accumulators of a strip of a row
constexpr std::int64_t kRows = 8;      // rows of dw that a task sums together

std::size_t packed_weight_size(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * k);
}

// forward [K, N], backward [N, K]: for both products the output's columns lie side by side.
template <typename T>
void pack_weight(const float* w, std::int64_t n, std::int64_t k, std::int64_t row_begin,
                 std::int64_t row_end, T* forward, T* backward) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    for (std::int64_t c = 0; c < k; ++c) {
      const T value = from_float<T>(w[row * k + c]);
      forward[c * n + row] = value;
      backward[row * k + c] = value;
    }
  }
}

template <typename T>
void linear_forward(ThreadPool& pool, const T* x, const T* packed, const float* bias,
                    std::int64_t rows, std::int64_t k, std::int64_t n, T* y) {
  pool.run(rows, [&](std::int64_t row, int) {
    for (std::int64_t begin = 0; begin < n; begin += kColumns) {
      const std::int64_t columns = std::min(kColumns, n - begin);
      float sums[kColumns] = {};
      for (std::int64_t i = 0; i < k; ++i) {
        const float left = to_float(x[row * k + i]);
        const T* right = packed + i * n + begin;
        for (std::int64_t c = 0; c < columns; ++c) sums[c] += left * to_float(right[c]);
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        const float sum = bias != nullptr ? sums[c] + bias[begin + c] : sums[c];
        y[row * n + begin + c] = from_float<T>(sum);
      }
    }
  });
}

template <typename T>
void linear_backward_input(ThreadPool& pool, const T* dy, const T* packed, std::int64_t rows,
                           std::int64_t k, std::int64_t n, T* dx) {
  linear_forward<T>(pool, dy, packed, nullptr, rows, n, k, dx);
}

struct Strip {
  float sums[kRows][kColumns] = {};
  float bias[kRows] = {};
};

template <typename T>
struct Gradient {
  const T* x;
  const T* dy;
  std::int64_t k, n;
  std::int64_t row, column, rows, columns;  // of dw

  Strip over(Shards shards) const {
    Strip strip;
    if (shards.size() > 2) {
      const std::size_t half = (shards.size() - 1) / 2;
      strip = over(shards.first(half + 1));
      const Strip right = over(shards.subspan(half));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) strip.sums[r][c] += right.sums[r][c];
        strip.bias[r] += right.bias[r];
      }
      return strip;
    }
    for (std::int64_t t = shards.front(); t < shards.back(); ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const float left = to_float(dy[t * n + row + r]);
        strip.bias[r] += left;
        const T* right = x + t * k + column;
        for (std::int64_t c = 0; c < columns; ++c) strip.sums[r][c] += left * to_float(right[c]);
      }
    }
    return strip;
  }
};

template <typename T>
void linear_backward_weight(ThreadPool& pool, const T* x, const T* dy, Shards shards,
                            std::int64_t k, std::int64_t n, float* dw, float* dbias,
                            std::byte* /*scratch*/) {
  pool.run((n + kRows - 1) / kRows, [&](std::int64_t task, int) {
    Gradient<T> gradient{x, dy, k, n, task * kRows, 0, std::min(kRows, n - task * kRows), 0};
    for (; gradient.column < k; gradient.column += kColumns) {
      gradient.columns = std::min(kColumns, k - gradient.column);
      const Strip strip = gradient.over(shards);
      for (std::int64_t r = 0; r < gradient.rows; ++r) {
        std::copy_n(strip.sums[r], gradient.columns, dw + (gradient.row + r) * k + gradient.column);
        if (dbias != nullptr) dbias[gradient.row + r] = strip.bias[r];
      }
    }
  });
}

std::size_t no_scratch(std::int64_t, std::int64_t, std::int64_t, std::int64_t, int) { return 0; }

}  // namespace

template <typename T>
void fill_gemm_ref(Ops<T>& ops) {
  ops.packed_weight_size = {packed_weight_size, "ref"};
  ops.pack_weight = {pack_weight<T>, "ref"};
  ops.linear_forward = {linear_forward<T>, "ref"};
  ops.linear_backward_input = {linear_backward_input<T>, "ref"};
  ops.linear_backward_weight = {linear_backward_weight<T>, "ref"};
  ops.linear_backward_weight_scratch = {no_scratch, "ref"};
}
template void fill_gemm_ref<float>(Ops<float>&);
template void fill_gemm_ref<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
