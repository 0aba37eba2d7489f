// The small matrix products of attention: C[m, n] = A[m, k] B[k, n] with fp32 sums; B is in
// scratch. An element E is a float, or a Pair of two bf16 adjacent along k (k then counts pairs).
// Each output is one sum over ascending k, so the bits do not depend on the tiling.
#include "worker/kernels/integers.h"

namespace tilewright::kernels {
namespace {

inline Vec load_elements(const float* p) { return load(p); }
inline Vec multiply_element(const float* a, Vec b, Vec sum) {
  return mul_add(broadcast(*a), b, sum);
}
#ifdef __AVX512BF16__
inline __m512i load_elements(const Pair* p) { return load_pairs(p); }
inline Vec multiply_element(const Pair* a, __m512i b, Vec sum) { return multiply_pairs(a, b, sum); }
#endif

// Element (i, k) of A is p[i * row + k * step].
template <typename E>
struct Left {
  const E* p;
  std::int64_t row;
  std::int64_t step;
};
// B [k, n] in panels of k rows of kPanel elements, so that a tile reads contiguous memory for any
// n. n is a multiple of kLanes; columns beyond it are padding.
inline constexpr std::int64_t kPanel = kTileVectors * kLanes;
template <typename E>
struct Panels {
  Panels(Scratch& scratch, std::int64_t rows, std::int64_t columns)
      : p(scratch.take<E>(rows * (columns < kPanel ? columns : round_up(columns, kPanel)))),
        k(rows),
        width(smaller(columns, kPanel)) {}
  // The kLanes elements of row i starting at column j, a multiple of kLanes.
  E* at(std::int64_t i, std::int64_t j) const {
    return p + j / kPanel * k * width + i * width + j % kPanel;
  }
  E* p;
  std::int64_t k;
  std::int64_t width;
};

// Where C goes: `add` (if not null) plus the product, as sums in scratch.
struct Sums {
  float* p;
  std::int64_t stride;
  const float* add;
  std::int64_t add_stride;
  Sums at(std::int64_t row, std::int64_t column) const {
    return {p + row * stride + column, stride,
            add == nullptr ? nullptr : add + row * add_stride + column, add_stride};
  }
  bool whole(std::int64_t /*width*/) const { return true; }
  template <bool kWhole>
  void store(std::int64_t row, std::int64_t column, Vec sum) const {
    kernels::store(p + row * stride + column, sum);
  }
};
// The same times a factor for each row, rounded to the first `columns` columns of a result.
template <typename Activation>
struct Result {
  Activation* p;
  std::int64_t stride;
  std::int64_t columns;
  const float* factors;  // of row i: factors[i * factor_step]
  std::int64_t factor_step;
  const float* add;
  std::int64_t add_stride;
  Result at(std::int64_t row, std::int64_t column) const {
    return {p + row * stride + column,
            stride,
            columns - column,
            factors + row * factor_step,
            factor_step,
            add == nullptr ? nullptr : add + row * add_stride + column,
            add_stride};
  }
  bool whole(std::int64_t width) const { return columns >= width; }
  template <bool kWhole>
  void store(std::int64_t row, std::int64_t column, Vec sum) const {
    const Vec x = sum * broadcast(factors[row * factor_step]);
    if constexpr (kWhole) {
      kernels::store(p + row * stride + column, x);
      return;
    }
    const std::int64_t n = columns - column;
    if (n > 0) store_n(p + row * stride + column, x, n < kLanes ? n : kLanes);
  }
};

template <bool kWhole, int kRows, int kVectors, typename Out>
inline void store_tile(const Out& out, const Vec (&sum)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) out.template store<kWhole>(r, v * kLanes, sum[r][v]);
  }
}

// One register tile of C at (row, column); a is the tile's first row of A.
template <int kRows, int kVectors, typename E, typename Out>
inline void tile(Left<E> a, const E* b, std::int64_t b_stride, std::int64_t k, const Out& to,
                 std::int64_t row, std::int64_t column) {
  const Out out = to.at(row, column);  // a copy, which stores to *p cannot change
  Vec sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = broadcast(0.0f);
  }
  if (out.add != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = load(out.add + r * out.add_stride + v * kLanes);
      }
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    decltype(load_elements(b)) right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_elements(b + i * b_stride + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const E* left = a.p + r * a.row + i * a.step;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_element(left, right[v], sum[r][v]);
    }
  }
  if (out.whole(kVectors * kLanes)) {
    store_tile<true>(out, sum);
  } else {
    store_tile<false>(out, sum);
  }
}

template <int kRows, int kVectors, typename E, typename Out>
inline void last_rows(std::int64_t rows, Left<E> a, const E* b, std::int64_t b_stride,
                      std::int64_t k, const Out& out, std::int64_t row, std::int64_t column) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      tile<kRows, kVectors>(a, b, b_stride, k, out, row, column);
    } else {
      last_rows<kRows - 1, kVectors>(rows, a, b, b_stride, k, out, row, column);
    }
  }
}

// All rows of kVectors vectors of columns, in tiles of as many rows as the registers allow.
template <int kVectors, typename E, typename Out>
void columns(std::int64_t m, Left<E> a, const E* b, std::int64_t b_stride, std::int64_t k,
             const Out& out, std::int64_t column) {
  constexpr int kRows = tile_rows(kVectors);
  std::int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    tile<kRows, kVectors>(Left<E>{a.p + i * a.row, a.row, a.step}, b, b_stride, k, out, i, column);
  }
  last_rows<kRows - 1, kVectors>(m - i, Left<E>{a.p + i * a.row, a.row, a.step}, b, b_stride, k,
                                 out, i, column);
}

// Calls body(column, count) for each panel of n columns, a multiple of kLanes; count.value is the
// panel's number of vectors as a constant.
template <int kCount>
struct Vectors {
  static constexpr int value = kCount;
};
template <typename Body>
inline void for_panels(std::int64_t n, Body&& body) {
  for (std::int64_t j = 0; j < n; j += kPanel) {
    const std::int64_t vectors = (n - j) / kLanes;
    if (vectors >= kTileVectors) {
      body(j, Vectors<kTileVectors>{});
    } else if (vectors == 1) {
      body(j, Vectors<1>{});
    } else if constexpr (kTileVectors == 4) {
      vectors == 3 ? body(j, Vectors<3>{}) : body(j, Vectors<2>{});
    }
  }
}

// C = A B over the first k rows of b. n is a multiple of kLanes.
template <typename E, typename Out>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Left<E> a, Panels<E> b,
             const Out& out) {
  for_panels(n, [&](std::int64_t j, auto count) {
    columns<count.value>(m, a, b.at(0, j), b.width, k, out, j);
  });
}

}  // namespace
}  // namespace tilewright::kernels
