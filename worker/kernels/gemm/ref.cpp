// Adds the products one by one in ascending order to one accumulator per element. The product of
// two bf16 is exact in fp32, so with fp32 accumulators the bits equal those of the widened FMA of
// AVX2 and AVX-512. Forward of floats has accumulators in double.
#include "worker/kernels/gemm/ref.h"

#include <algorithm>
#include <type_traits>

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/gemm/peak_operands.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

using runtime::from_float;
using runtime::to_float;

constexpr std::int64_t kColumns = 64;  // accumulators of a strip of a row
constexpr std::int64_t kRows = 8;      // rows of dw that a task sums together

std::size_t packed_weight_size(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n * k);
}

// forward [K, N], backward [N, K]: the output columns of either product are contiguous.
template <typename Activation>
void pack_weight(const float* w, std::int64_t n, std::int64_t k, std::int64_t row_begin,
                 std::int64_t row_end, Activation* forward, Activation* backward) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    for (std::int64_t c = 0; c < k; ++c) {
      const Activation value = from_float<Activation>(w[row * k + c]);
      forward[c * n + row] = value;
      backward[row * k + c] = value;
    }
  }
}

template <typename Activation>
void linear_forward(ThreadPool& pool, const Activation* x, const Activation* packed,
                    const float* bias, std::int64_t rows, std::int64_t k, std::int64_t n,
                    Activation* y, std::byte* /*scratch*/) {
  using Sum = std::conditional_t<std::is_same_v<Activation, float>, double, float>;
  pool.run(rows, [&](std::int64_t row, int) {
    for (std::int64_t begin = 0; begin < n; begin += kColumns) {
      const std::int64_t columns = std::min(kColumns, n - begin);
      Sum sums[kColumns] = {};
      for (std::int64_t i = 0; i < k; ++i) {
        const Sum left = to_float(x[row * k + i]);
        const Activation* right = packed + i * n + begin;
        for (std::int64_t c = 0; c < columns; ++c) sums[c] += left * to_float(right[c]);
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        const Sum sum = bias != nullptr ? sums[c] + bias[begin + c] : sums[c];
        y[row * n + begin + c] = from_float<Activation>(static_cast<float>(sum));
      }
    }
  });
}

template <typename Activation>
void linear_backward_input(ThreadPool& pool, const Activation* dy, const Activation* packed,
                           std::int64_t rows, std::int64_t k, std::int64_t n, Activation* dx,
                           std::byte* scratch) {
  linear_forward<Activation>(pool, dy, packed, nullptr, rows, n, k, dx, scratch);
}

struct Strip {
  float sums[kRows][kColumns] = {};
  float bias[kRows] = {};
};

template <typename Activation>
struct Gradient {
  const Activation* x;
  const Activation* dy;
  std::int64_t k, n;
  std::int64_t row, column, rows, columns;  // of dw

  Strip sum_shards(Shards shards) const {
    Strip strip;
    if (shards.size() > 2) {
      const std::size_t half = (shards.size() - 1) / 2;
      strip = sum_shards(shards.first(half + 1));
      const Strip right = sum_shards(shards.subspan(half));
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
        const Activation* right = x + t * k + column;
        for (std::int64_t c = 0; c < columns; ++c) strip.sums[r][c] += left * to_float(right[c]);
      }
    }
    return strip;
  }
};

template <typename Activation>
void linear_backward_weight(ThreadPool& pool, const Activation* x, const Activation* dy,
                            Shards shards, std::int64_t k, std::int64_t n, float* dw, float* dbias,
                            std::byte* /*scratch*/) {
  pool.run((n + kRows - 1) / kRows, [&](std::int64_t task, int) {
    Gradient<Activation> gradient{x, dy, k, n, task * kRows, 0, std::min(kRows, n - task * kRows),
                                  0};
    for (; gradient.column < k; gradient.column += kColumns) {
      gradient.columns = std::min(kColumns, k - gradient.column);
      const Strip strip = gradient.sum_shards(shards);
      for (std::int64_t r = 0; r < gradient.rows; ++r) {
        std::copy_n(strip.sums[r], gradient.columns, dw + (gradient.row + r) * k + gradient.column);
        if (dbias != nullptr) dbias[gradient.row + r] = strip.bias[r];
      }
    }
  });
}

// As Engine::peak, with the instructions that the compiler selects for plain loops.
double peak(std::int64_t rounds) {
  constexpr int kWidth = 32;
  float sums[kWidth];
  float factors[kWidth];
  fill_peak_operands(sums, kWidth, 1);
  fill_peak_operands(factors, kWidth, 2);
  asm volatile("" : : "r"(factors) : "memory");
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (int c = 0; c < kWidth; ++c) sums[c] += factors[c] * factors[0];
  }
  asm volatile("" : : "r"(sums) : "memory");
  return static_cast<double>(rounds) * 2 * kWidth;
}

template <typename Activation>
constexpr Engine<Activation> make_engine() {
  Engine<Activation> engine;
  engine.name = "ref";
  engine.peak = peak;
  return engine;
}

std::size_t no_forward_scratch(std::int64_t, std::int64_t, int) { return 0; }
std::size_t no_scratch(std::int64_t, std::int64_t, std::int64_t, std::int64_t, int) { return 0; }

}  // namespace

constinit const Engine<float> kRefFloat = make_engine<float>();
constinit const Engine<bf16> kRefBf16 = make_engine<bf16>();

template <typename Activation>
void fill_gemm_ref(Ops<Activation>& ops) {
  ops.packed_weight_size.template bind<packed_weight_size>("ref");
  ops.pack_weight.template bind<pack_weight<Activation>>("ref");
  ops.linear_forward.template bind<linear_forward<Activation>>("ref");
  ops.linear_backward_input.template bind<linear_backward_input<Activation>>("ref");
  ops.linear_forward_scratch.template bind<no_forward_scratch>("ref");
  ops.linear_backward_weight.template bind<linear_backward_weight<Activation>>("ref");
  ops.linear_backward_weight_scratch.template bind<no_scratch>("ref");
}
template void fill_gemm_ref<float>(Ops<float>&);
template void fill_gemm_ref<bf16>(Ops<bf16>&);

}  // namespace tilewright::kernels
