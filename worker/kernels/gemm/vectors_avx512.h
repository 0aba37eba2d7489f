// The part of a tile policy (tiles.h) that AVX-512 files share.
#pragma once

#include <immintrin.h>

#include "worker/kernels/gemm/packing.h"

namespace tilewright::kernels {
namespace {

struct Packing512 {
  // Word 2 i of the result is word i of the first row, word 2 i + 1 that of the second.
  static __m512i interleaved(__m512i row, __m512i next, int from) {
    const __m512i rising =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i index = _mm512_add_epi16(rising, _mm512_set1_epi16(static_cast<short>(from)));
    return _mm512_permutex2var_epi16(row, index, next);
  }

  template <int W>
  static void row_pair(const bf16* row, const bf16* next, bf16* out) {
    if constexpr (W == 32) {
      const __m512i a = _mm512_loadu_si512(row);
      const __m512i b = _mm512_loadu_si512(next);
      _mm512_storeu_si512(out, interleaved(a, b, 0));
      _mm512_storeu_si512(out + 32, interleaved(a, b, 16));
    } else {
      static_assert(W <= 16);
      const __mmask16 words = static_cast<__mmask16>((1u << W) - 1u);
      const __m256i a = _mm256_maskz_loadu_epi16(words, row);
      const __m256i b = _mm256_maskz_loadu_epi16(words, next);
      _mm512_storeu_si512(out,
                          interleaved(_mm512_castsi256_si512(a), _mm512_castsi256_si512(b), 0));
    }
  }
};

struct Vectors512 {
  using Packing = Packing512;
  using Vec = __m512;
  static constexpr int kLanes = 16;

  static __mmask16 lanes(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static Vec load_part(const float* p, int count) { return _mm512_maskz_loadu_ps(lanes(count), p); }
  static void store_float(float* p, Vec x) { _mm512_storeu_ps(p, x); }
};

}  // namespace
}  // namespace tilewright::kernels
