// The vector type of AVX2 with FMA: 8 floats. Partial vectors of bf16 are copied through a buffer.
#include <immintrin.h>

#include <cstdint>

#include "worker/kernels/math/bf16_avx2.h"
#include "worker/runtime/bf16.h"

namespace tilewright::kernels {
namespace {

using runtime::bf16;

using Vec = __m256;
using Mask = __m256;  // each lane all ones or all zeros
inline constexpr int kLanes = 8;

inline __m256i lane_numbers() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline __m256i first_lanes_integer(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane_numbers());
}
inline Mask first_lanes(std::int64_t n) { return _mm256_castsi256_ps(first_lanes_integer(n)); }
inline Mask mask_from_bits(std::uint32_t bits) {
  const __m256i places = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), places);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, places));
}

inline Vec broadcast(float x) { return _mm256_set1_ps(x); }
inline Vec mul_add(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec absolute(Vec x) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}
// NaN in `x` passes through.
inline Vec maximum(Vec lower, Vec x) { return _mm256_max_ps(lower, x); }
inline Vec minimum(Vec upper, Vec x) { return _mm256_min_ps(upper, x); }
inline Vec square_root(Vec x) { return _mm256_sqrt_ps(x); }
inline Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Vec select(Mask mask, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, mask); }
inline Vec select_or_zero(Mask mask, Vec x) { return _mm256_and_ps(mask, x); }
inline Vec round_to_integer(Vec x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x 2^n for an integer n if the result is a normal number, otherwise unspecified.
inline Vec scale_by_power(Vec x, Vec n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}

// x minus x rounded down.
inline Vec fraction(Vec x) { return x - _mm256_floor_ps(x); }
// x 2^m, m = n rounded down, if the result is a normal number; zero if n < -126.
inline Vec scale_by_power_down(Vec x, Vec n) {
  const Mask zero = less(n, broadcast(-126.0f));
  return _mm256_andnot_ps(zero, scale_by_power(x, _mm256_floor_ps(n)));
}

inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec load_first(const float* p, std::int64_t n) {
  return _mm256_maskload_ps(p, first_lanes_integer(n));
}
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
// `p` is aligned. Other threads see the stores after end_stores_past_caches().
inline void store_past_caches(float* p, Vec x) { _mm256_stream_ps(p, x); }
inline void end_stores_past_caches() { _mm_sfence(); }
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline void prefetch_for_write(void* p) { prefetch(p); }
inline void store_first(float* p, Vec x, std::int64_t n) {
  _mm256_maskstore_ps(p, first_lanes_integer(n), x);
}

inline Vec load(const bf16* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline Vec load_first(const bf16* p, std::int64_t n) {
  alignas(16) std::uint16_t buffer[8] = {};
  __builtin_memcpy(buffer, p, static_cast<std::size_t>(n) * sizeof(bf16));
  return load(reinterpret_cast<const bf16*>(buffer));
}
inline void store(bf16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), round_to_bf16(x));
}
inline void store_first(bf16* p, Vec x, std::int64_t n) {
  alignas(16) std::uint16_t buffer[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(buffer), round_to_bf16(x));
  __builtin_memcpy(p, buffer, static_cast<std::size_t>(n) * sizeof(bf16));
}

// Adds lanes 4 apart, then 2 apart, then 1 apart.
inline float horizontal_sum(Vec x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// r[i] lane j becomes r[j] lane i.
inline void transpose(Vec (&r)[8]) {
  Vec u[8];
#pragma GCC unroll 2
  for (int g = 0; g < 8; g += 4) {
    const Vec a = _mm256_unpacklo_ps(r[g], r[g + 1]);
    const Vec b = _mm256_unpackhi_ps(r[g], r[g + 1]);
    const Vec c = _mm256_unpacklo_ps(r[g + 2], r[g + 3]);
    const Vec d = _mm256_unpackhi_ps(r[g + 2], r[g + 3]);
    u[g] = _mm256_shuffle_ps(a, c, 0x44);
    u[g + 1] = _mm256_shuffle_ps(a, c, 0xee);
    u[g + 2] = _mm256_shuffle_ps(b, d, 0x44);
    u[g + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  // Half L of u[g + c] now holds column 4 L + c of rows g .. g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
  }
}

// Register tiles of attention's products: tile_rows(vectors) x `vectors` accumulators leave
// registers for `vectors` vectors of B and one element of A.
inline constexpr int kTileVectors = 2;
constexpr int tile_rows(int vectors) { return vectors == 1 ? 10 : 6; }

// Adds squares in double to 16 partial sums; two successive vectors fill all 16.
struct Doubles16 {
  __m256d part[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(),
                     _mm256_setzero_pd()};
  int half = 0;
  void add_squares(Vec x) {
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    part[half] = _mm256_fmadd_pd(a, a, part[half]);
    part[half + 1] = _mm256_fmadd_pd(b, b, part[half + 1]);
    half ^= 2;
  }
  void store(double* p) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_pd(p + 4 * i, part[i]);
  }
};

// Integers of Philox: 32-bit values in the low halves of 64-bit lanes.
struct Words {
  __m256i v;
};
inline constexpr int kWordLanes = 4;
inline Words words(std::uint32_t x) { return {_mm256_set1_epi64x(x)}; }
// first, first + step, first + 2 step, ...
inline Words iota_words(std::uint32_t first, std::uint32_t step) {
  const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
  return {_mm256_add_epi64(_mm256_set1_epi64x(first),
                           _mm256_mul_epu32(lanes, _mm256_set1_epi64x(step)))};
}
// Of the counters of one block of columns for one row: every second counter, and the row.
inline Words block_words(std::uint32_t first) { return iota_words(first, 2); }
inline Words row_words(std::uint32_t row) { return words(row); }
inline Words multiply(Words a, Words b) { return {_mm256_mul_epu32(a.v, b.v)}; }
inline Words high_half(Words a) { return {_mm256_srli_epi64(a.v, 32)}; }
// The same on another port, with the upper half of each lane left as it is.
inline Words high_half_shuffled(Words a) { return {_mm256_shuffle_epi32(a.v, 0xf5)}; }
inline Words exclusive_or(Words a, Words b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline Words exclusive_or(Words a, Words b, Words c) {
  return {_mm256_xor_si256(_mm256_xor_si256(a.v, b.v), c.v)};
}
// The lower or upper halves of two vectors, alternating.
inline Words low_halves(Words even, Words odd) {
  return {_mm256_blend_epi32(even.v, _mm256_shuffle_epi32(odd.v, 0xa0), 0xaa)};
}
inline Words high_halves(Words even, Words odd) {
  return {_mm256_blend_epi32(odd.v, _mm256_shuffle_epi32(even.v, 0xf5), 0x55)};
}
inline Words in_both_halves(std::uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
// Bit i of the result is set if number i of the vector's 16 numbers of 16 bits is at least
// `threshold`.
inline std::uint32_t greater_equal_mask(Words numbers, std::uint32_t threshold) {
  const __m256i limit = _mm256_set1_epi16(static_cast<short>(threshold));
  const __m256i kept = _mm256_cmpeq_epi16(_mm256_max_epu16(numbers.v, limit), numbers.v);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(bytes));
}

}  // namespace
}  // namespace tilewright::kernels
