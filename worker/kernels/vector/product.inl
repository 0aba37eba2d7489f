// The small matrix products of attention: C[m, n] = A[m, k] B[k, n], fp32 sums, B and C in scratch.
// An element E is a float, or a Pair of two bf16 next to each other along k (then k counts pairs).
// Every sum runs over k in rising order by itself, so tiling never shows in the bits.
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

// Element (i, k) of A stands at p[i * row + k * step].
template <typename E>
struct Left {
  const E* p;
  std::int64_t row;
  std::int64_t step;
};
// Row i at p + i * stride.
template <typename E>
struct Rows {
  E* p;
  std::int64_t stride;
};

// kAdd: C += A B.
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

// All rows of kVectors columns of vectors, in tiles of as many rows as registers allow.
template <bool kAdd, int kVectors, typename E>
void columns(std::int64_t m, Left<E> a, const E* b, std::int64_t b_stride, std::int64_t k, float* c,
             std::int64_t c_stride) {
  std::int64_t i = 0;
  for (; i + kTileRows <= m; i += kTileRows) {
    tile<kAdd, kTileRows, kVectors>(Left<E>{a.p + i * a.row, a.row, a.step}, b, b_stride, k,
                                    c + i * c_stride, c_stride);
  }
  last_rows<kAdd, kTileRows - 1, kVectors>(m - i, Left<E>{a.p + i * a.row, a.row, a.step}, b,
                                           b_stride, k, c + i * c_stride, c_stride);
}

// n is a multiple of kLanes.
template <bool kAdd, typename E>
void product(std::int64_t m, std::int64_t n, std::int64_t k, Left<E> a, Rows<E> b, Rows<float> c) {
  std::int64_t j = 0;
  for (; j + kTileVectors * kLanes <= n; j += kTileVectors * kLanes) {
    columns<kAdd, kTileVectors>(m, a, b.p + j, b.stride, k, c.p + j, c.stride);
  }
  if constexpr (kTileVectors == 4) {
    if (n - j >= 2 * kLanes) {
      columns<kAdd, 2>(m, a, b.p + j, b.stride, k, c.p + j, c.stride);
      j += 2 * kLanes;
    }
  }
  if (j < n) columns<kAdd, 1>(m, a, b.p + j, b.stride, k, c.p + j, c.stride);
}

}  // namespace
}  // namespace tilewright::kernels
