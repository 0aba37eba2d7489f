// Linear layers with AVX-512: fp32, and bf16 widened to fp32 (exact) before the same FMA.
#include <immintrin.h>

#include "worker/kernels/gemm/tiles.h"
#include "worker/kernels/gemm/vectors_avx512.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

struct Float : Vectors512 {
  using Element = float;
  using Left = __m512;
  using Right = __m512;
  static constexpr int kGroup = 1;
  static constexpr std::int64_t kMostTerms = 64;
  static constexpr int kPhases = 1;
  static constexpr int kRows = 14;
  static constexpr int kVectors = 2;

  template <int>
  static Left load_a(const float* p) {
    return _mm512_set1_ps(*p);
  }
  template <int>
  static Left load_a_last(const float* p) {
    return _mm512_set1_ps(*p);
  }
  template <int>
  static Right load_b(const float* p) {
    return _mm512_loadu_ps(p);
  }
  static Vec multiply_add(Vec acc, Left a, Right b) { return _mm512_fmadd_ps(a, b, acc); }
  static void store(float* p, Vec x) { store_float(p, x); }
  static void store_part(float* p, Vec x, int count) { _mm512_mask_storeu_ps(p, lanes(count), x); }
};

// Phase 0 multiplies the first elements of the pairs, phase 1 the second elements.
struct Widened : Bf16Vectors512 {
  using Element = bf16;
  using Left = __m512;
  using Right = __m512;
  static constexpr int kGroup = 2;
  static constexpr std::int64_t kMostTerms = 0;
  static constexpr int kPhases = 2;
  static constexpr int kRows = 12;
  static constexpr int kVectors = 2;

  template <int kPhase>
  static __m512 half(__m512i pairs) {
    return _mm512_castsi512_ps(
        kPhase == 0 ? _mm512_slli_epi32(pairs, 16)
                    : _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int kPhase>
  static Left load_a(const bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return half<kPhase>(_mm512_set1_epi32(pair));
  }
  template <int kPhase>
  static Left load_a_last(const bf16* p) {
    return half<kPhase>(_mm512_set1_epi32(p->bits));
  }
  template <int kPhase>
  static Right load_b(const bf16* p) {
    return half<kPhase>(_mm512_loadu_si512(p));
  }
  static Vec multiply_add(Vec acc, Left a, Right b) { return _mm512_fmadd_ps(a, b, acc); }
};

}  // namespace

constinit const Engine<float> kAvx512Float = make_engine<Float>("avx512 14x32");
constinit const Engine<bf16> kAvx512Widened = make_engine<Widened>("avx512 12x32 widened");

}  // namespace tilewright::kernels
