// Rounds AVX-512 vectors to bf16. Result: the bits of runtime::to_bf16 for every input, except that
// the AVX512-BF16 instructions take subnormal inputs as zero of the same sign (tested by
// bf16_rounding_test.cpp).
#pragma once

#include <immintrin.h>

namespace tilewright::kernels {
namespace {

// Integer arithmetic, exact for subnormals too. The result is in the lower halves of 16 words.
inline __m512i round_to_bf16_words(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
}

// One instruction where AVX512-BF16 is compiled in.
inline __m256i round_to_bf16(__m512 x) {
#ifdef __AVX512BF16__
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  return _mm512_cvtepi32_epi16(round_to_bf16_words(x));
#endif
}

}  // namespace
}  // namespace tilewright::kernels
