// The vector type of AVX-512 (F, BW, VL, DQ): 16 floats. With AVX512-BF16 it also has pairs of
// bf16.
#include <immintrin.h>

#include <cstdint>

#include "worker/kernels/math/bf16_avx512.h"
#include "worker/runtime/bf16.h"

namespace tilewright::kernels {
namespace {

using runtime::bf16;

using Vec = __m512;
using Mask = __mmask16;
inline constexpr int kLanes = 16;

inline Mask first_lanes(std::int64_t n) { return static_cast<Mask>((1u << n) - 1u); }
inline Mask mask_from_bits(std::uint32_t bits) { return static_cast<Mask>(bits); }

inline Vec broadcast(float x) { return _mm512_set1_ps(x); }
inline Vec mul_add(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec absolute(Vec x) { return _mm512_abs_ps(x); }
// NaN in `x` passes through.
inline Vec maximum(Vec lower, Vec x) { return _mm512_max_ps(lower, x); }
inline Vec minimum(Vec upper, Vec x) { return _mm512_min_ps(upper, x); }
inline Vec square_root(Vec x) { return _mm512_sqrt_ps(x); }
inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Vec select(Mask mask, Vec yes, Vec no) { return _mm512_mask_blend_ps(mask, no, yes); }
inline Vec select_or_zero(Mask mask, Vec x) { return _mm512_maskz_mov_ps(mask, x); }
inline Vec round_to_integer(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec scale_by_power(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }

// x minus x rounded down.
inline Vec fraction(Vec x) {
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
// x 2^m, m = n rounded down.
inline Vec scale_by_power_down(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }

inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load_first(const float* p, std::int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
// `p` is aligned. Other threads see the stores after end_stores_past_caches().
inline void store_past_caches(float* p, Vec x) { _mm512_stream_ps(p, x); }
inline void end_stores_past_caches() { _mm_sfence(); }
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
inline void prefetch_for_write(void* p) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<char*>(p)));
}
inline void store_first(float* p, Vec x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x);
}

inline Vec widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Vec load(const bf16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load_first(const bf16* p, std::int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline void store(bf16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), round_to_bf16(x));
}
inline void store_first(bf16* p, Vec x, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), round_to_bf16(x));
}

// Adds lanes 8 apart, then 4, 2 and 1 apart.
inline float horizontal_sum(Vec x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// r[i] lane j becomes r[j] lane i.
inline void transpose(Vec (&r)[16]) {
  Vec u[16];
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    const Vec a = _mm512_unpacklo_ps(r[g], r[g + 1]);
    const Vec b = _mm512_unpackhi_ps(r[g], r[g + 1]);
    const Vec c = _mm512_unpacklo_ps(r[g + 2], r[g + 3]);
    const Vec d = _mm512_unpackhi_ps(r[g + 2], r[g + 3]);
    const auto low = [](Vec x, Vec y) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    };
    const auto high = [](Vec x, Vec y) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
    };
    u[g] = low(a, c);
    u[g + 1] = high(a, c);
    u[g + 2] = low(b, d);
    u[g + 3] = high(b, d);
  }
  // Quarter L of u[g + c] now holds column 4 L + c of rows g .. g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const Vec even_top = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
    const Vec odd_top = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
    const Vec even_low = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const Vec odd_low = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
    r[c] = _mm512_shuffle_f32x4(even_top, even_low, 0x88);
    r[8 + c] = _mm512_shuffle_f32x4(even_top, even_low, 0xdd);
    r[4 + c] = _mm512_shuffle_f32x4(odd_top, odd_low, 0x88);
    r[12 + c] = _mm512_shuffle_f32x4(odd_top, odd_low, 0xdd);
  }
}

// Register tiles of attention's products: tile_rows(vectors) x `vectors` accumulators leave
// registers for `vectors` vectors of B and one element of A.
inline constexpr int kTileVectors = 4;
constexpr int tile_rows(int vectors) { return vectors <= 2 ? 12 : 24 / vectors; }

#ifdef __AVX512BF16__
// Two adjacent bf16, the first one in the low half.
using Pair = std::uint32_t;
inline __m512bh as_pairs(__m512i x) { return reinterpret_cast<__m512bh>(x); }
inline Vec multiply_pairs(__m512i a, __m512i b, Vec sum) {
  return _mm512_dpbf16_ps(sum, as_pairs(a), as_pairs(b));
}
inline Vec multiply_pairs(const Pair* a, __m512i b, Vec sum) {
  return multiply_pairs(_mm512_set1_epi32(static_cast<int>(*a)), b, sum);
}
inline __m512i load_pairs(const Pair* p) { return _mm512_loadu_si512(p); }
// Rounds two vectors to bf16, `first` to the low half; lanes without a bit in `kept` become zero.
inline __m512i round_two(Vec first, Vec second, std::uint32_t kept = 0xffffffffu) {
  return reinterpret_cast<__m512i>(_mm512_maskz_cvtne2ps_pbh(kept, second, first));
}
// Stores two vectors that round_two() rounded, in two rows.
inline void store_rows(bf16* first_row, bf16* second_row, __m512i two) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first_row), _mm512_castsi512_si256(two));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(second_row), _mm512_extracti64x4_epi64(two, 1));
}
// Makes them pairs (first[i], second[i]) in lane i.
inline __m512i pairs_of_two(__m512i two) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, two);
}
inline void store_pairs(Pair* p, __m512i pairs) { _mm512_storeu_si512(p, pairs); }
// Rounds two vectors and stores them as pairs, see round_two().
inline void store_pairs(Pair* p, Vec first, Vec second, std::uint32_t kept = 0xffffffffu) {
  store_pairs(p, pairs_of_two(round_two(first, second, kept)));
}
// Stores in lane i < n the pair (first[i], second[i]), zeros in the other lanes. second: may be
// null for zeros.
inline void store_pairs(Pair* p, const bf16* first, const bf16* second, std::int64_t n) {
  const auto low = _mm256_maskz_loadu_epi16(first_lanes(n), first);
  __m512i pairs = _mm512_cvtepu16_epi32(low);
  if (second != nullptr) {
    const auto high = _mm256_maskz_loadu_epi16(first_lanes(n), second);
    pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
  }
  _mm512_storeu_si512(p, pairs);
}
#endif

// Adds 16 squares in double to 16 partial sums.
struct Doubles16 {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  void add_squares(Vec x) {
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  void store(double* p) const {
    _mm512_storeu_pd(p, low);
    _mm512_storeu_pd(p + 8, high);
  }
};

// Integers of Philox: 32-bit values in the low halves of 64-bit lanes.
struct Words {
  __m512i v;
};
inline constexpr int kWordLanes = 8;
inline Words words(std::uint32_t x) { return {_mm512_set1_epi64(x)}; }
// first, first + step, first + 2 step, ...
inline Words iota_words(std::uint32_t first, std::uint32_t step) {
  const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  return {
      _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_mul_epu32(lanes, _mm512_set1_epi64(step)))};
}
// Of the counters of one block of columns for two rows: every second counter, and the rows.
inline Words block_words(std::uint32_t first) {
  return {_mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6))};
}
inline Words row_words(std::uint32_t row) {
  return {_mm512_add_epi64(_mm512_set1_epi64(row), _mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1))};
}
inline Words multiply(Words a, Words b) { return {_mm512_mul_epu32(a.v, b.v)}; }
inline Words high_half(Words a) { return {_mm512_srli_epi64(a.v, 32)}; }
// The same on another port, with the upper half of each lane left as it is.
inline Words high_half_shuffled(Words a) { return {_mm512_shuffle_epi32(a.v, _MM_PERM_DDBB)}; }
inline Words exclusive_or(Words a, Words b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Words exclusive_or(Words a, Words b, Words c) {
  return {_mm512_ternarylogic_epi64(a.v, b.v, c.v, 0x96)};
}
// The lower or upper halves of two vectors, alternating.
inline Words low_halves(Words even, Words odd) {
  return {_mm512_mask_shuffle_epi32(even.v, 0xaaaa, odd.v, _MM_PERM_CCAA)};
}
inline Words high_halves(Words even, Words odd) {
  return {_mm512_mask_shuffle_epi32(odd.v, 0x5555, even.v, _MM_PERM_DDBB)};
}
inline Words in_both_halves(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
// Bit i of the result is set if number i of the vector's 32 numbers of 16 bits is at least
// `threshold`.
inline std::uint32_t greater_equal_mask(Words numbers, std::uint32_t threshold) {
  return _mm512_cmpge_epu16_mask(numbers.v, _mm512_set1_epi16(static_cast<short>(threshold)));
}

}  // namespace
}  // namespace tilewright::kernels
