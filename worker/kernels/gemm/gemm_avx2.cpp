// Linear layers with AVX2 and FMA: fp32, and bf16 widened to fp32 (exact) before the same FMA.
#include <immintrin.h>

#include "worker/kernels/gemm/tiles.h"
#include "worker/kernels/isa_entries.h"
#include "worker/kernels/math/bf16_avx2.h"

namespace tilewright::kernels {
namespace {

struct Vectors256 {
  using Packing = PortablePacking;
  using Vec = __m256;
  using Left = __m256;
  using Right = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kVectors = 2;

  static __m256i lanes(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static Vec load_part(const float* p, int count) { return _mm256_maskload_ps(p, lanes(count)); }
  static void store_float(float* p, Vec x) { _mm256_storeu_ps(p, x); }
  static Vec multiply_add(Vec acc, Left a, Right b) { return _mm256_fmadd_ps(a, b, acc); }
};

struct Float : Vectors256 {
  using Element = float;
  static constexpr int kRows = 6;
  static constexpr int kGroup = 1;
  static constexpr int kPhases = 1;

  template <int>
  static Left load_a(const float* p) {
    return _mm256_broadcast_ss(p);
  }
  template <int>
  static Left load_a_last(const float* p) {
    return _mm256_broadcast_ss(p);
  }
  template <int>
  static Right load_b(const float* p) {
    return _mm256_loadu_ps(p);
  }
  static void store(float* p, Vec x) { store_float(p, x); }
  static void store_part(float* p, Vec x, int count) { _mm256_maskstore_ps(p, lanes(count), x); }
};

// Phase 0 multiplies the first elements of the pairs, phase 1 the second elements.
struct Widened : Vectors256 {
  using Element = bf16;
  static constexpr int kRows = 5;  // a sixth row leaves no register for the widening
  static constexpr int kGroup = 2;
  static constexpr int kPhases = 2;

  template <int kPhase>
  static __m256 half(__m256i pairs) {
    return _mm256_castsi256_ps(
        kPhase == 0 ? _mm256_slli_epi32(pairs, 16)
                    : _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int kPhase>
  static Left load_a(const bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return half<kPhase>(_mm256_set1_epi32(pair));
  }
  template <int kPhase>
  static Left load_a_last(const bf16* p) {
    return half<kPhase>(_mm256_set1_epi32(p->bits));
  }
  template <int kPhase>
  static Right load_b(const bf16* p) {
    return half<kPhase>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store(bf16* p, Vec x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), round_to_bf16(x));
  }
  static void store_part(bf16* p, Vec x, int count) {
    bf16 all[kLanes];
    store(all, x);
    for (int i = 0; i < count; ++i) p[i] = all[i];
  }
};

}  // namespace

constinit const Engine<float> kAvx2Float = make_engine<Float>("avx2 6x16");
constinit const Engine<bf16> kAvx2Bf16 = make_engine<Widened>("avx2 5x16 widened");

}  // namespace tilewright::kernels
