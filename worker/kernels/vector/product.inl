// The small matrix products of attention: C[m, n] = A[m, k] B[k, n] with fp32 sums; B and C are in
// scratch. An element E is a float, or a Pair of two bf16 adjacent along k (k then counts pairs).
// Each output is one sum over ascending k, so the bits do not depend on the tiling.
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
// Row i starts at p + i * stride.
template <typename E>
struct Rows {
  E* p;
  std::int64_t stride;
};
// B [k, n] in panels of k rows of `width` elements, so that a tile reads contiguous memory for any
// n. Columns beyond n are padding.
inline constexpr std::int64_t kPanel = kTileVectors * kLanes;
template <typename E>
struct Panels {
  Panels(E* start, std::int64_t rows, std::int64_t columns)
      : p(start), k(rows), width(columns < kPanel ? columns : kPanel) {}
  // The kLanes elements of row i starting at column j, a multiple of kLanes.
  E* at(std::int64_t i, std::int64_t j) const {
    return p + j / kPanel * k * width + i * width + j % kPanel;
  }
  // Number of elements for k rows and n columns; n is a multiple of kLanes.
  static std::int64_t size(std::int64_t rows, std::int64_t columns) {
    return rows * (columns < kPanel ? columns : (columns + kPanel - 1) / kPanel * kPanel);
  }
  E* p;
  std::int64_t k;
  std::int64_t width;
};

// One register tile of C = A B, or of C += A B if kAdd.
template <bool kAdd, int kRows, int kVectors, typename E>
inline void tile(Left<E> a, const E* b, std::int64_t b_stride, std::int64_t k, float* c,
                 std::int64_t c_stride) {
  Vec sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? load(c + r * c_stride + v * kLanes) : broadcast(0.0f);
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    decltype(load_elements(b)) right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) right[v] = load_elements(b + i * b_stride + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const E* left = a.p + r * a.row + i * a.step;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = multiply_element(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kLanes, sum[r][v]);
  }
}

template <bool kAdd, int kRows, int kVectors, typename E>
inline void last_rows(std::int64_t rows, Left<E> a, const E* b, std::int64_t b_stride,
                      std::int64_t k, float* c, std::int64_t c_stride) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      tile<kAdd, kRows, kVectors>(a, b, b_stride, k, c, c_stride);
    } else {
      last_rows<kAdd, kRows - 1, kVectors>(rows, a, b, b_stride, k, c, c_stride);
    }
  }
}

// All rows of kVectors vectors of columns, in tiles of as many rows as the registers allow.
template <bool kAdd, int kVectors, typename E>
void columns(std::int64_t m, Left<E> a, const E* b, std::int64_t b_stride, std::int64_t k, float* c,
             std::int64_t c_stride) {
  constexpr int kRows = tile_rows(kVectors);
  std::int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    tile<kAdd, kRows, kVectors>(Left<E>{a.p + i * a.row, a.row, a.step}, b, b_stride, k,
                                c + i * c_stride, c_stride);
  }
  last_rows<kAdd, kRows - 1, kVectors>(m - i, Left<E>{a.p + i * a.row, a.row, a.step}, b, b_stride,
                                       k, c + i * c_stride, c_stride);
}

// C = A B, or C += A B if kAdd, over the first k rows of b. n is a multiple of kLanes.
template <bool kAdd, typename E>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Left<E> a, Panels<E> b,
             Rows<float> c) {
  for (std::int64_t j = 0; j < n; j += kPanel) {
    const std::int64_t vectors = (n - j) / kLanes;
    const E* panel = b.at(0, j);
    if (vectors >= kTileVectors) {
      columns<kAdd, kTileVectors>(m, a, panel, b.width, k, c.p + j, c.stride);
    } else if (vectors == 1) {
      columns<kAdd, 1>(m, a, panel, b.width, k, c.p + j, c.stride);
    } else if constexpr (kTileVectors == 4) {
      if (vectors == 3) columns<kAdd, 3>(m, a, panel, b.width, k, c.p + j, c.stride);
      if (vectors == 2) columns<kAdd, 2>(m, a, panel, b.width, k, c.p + j, c.stride);
    }
  }
}

}  // namespace
}  // namespace tilewright::kernels
