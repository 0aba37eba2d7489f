// Linear layers with AVX2 and FMA: fp32, and bf16 widened to fp32 (exact) before the same FMA.
#include <immintrin.h>

#include "worker/kernels/gemm/tiles.h"
#include "worker/kernels/isa_entries.h"
#include "worker/kernels/math/bf16_avx2.h"

namespace tilewright::kernels {
namespace {

struct Packing256 : PortablePacking {
  static constexpr int kBlockColumns = 16;

  // Packs 16 rows by 16 columns of W: into `forward` 16 columns of 16 rows each, into `backward` 16
  // rows. Two stores in succession fill 64 bytes, as in Packing512.
  static void pack_weight_block(const float* w, std::int64_t ld, float* forward, float* backward) {
    const auto address =
        reinterpret_cast<std::uintptr_t>(forward) | reinterpret_cast<std::uintptr_t>(backward);
    if (address % 32 == 0) {
      pack_16x16(w, ld, forward, backward, [](float* p, __m256 x) { _mm256_stream_ps(p, x); });
    } else {
      pack_16x16(w, ld, forward, backward, [](float* p, __m256 x) { _mm256_storeu_ps(p, x); });
    }
  }
  template <typename Store>
  __attribute__((always_inline)) static void pack_16x16(const float* w, std::int64_t ld,
                                                        float* forward, float* backward,
                                                        Store store) {
    for (int r = 0; r < 16; ++r) {
      store(backward + r * 16, _mm256_loadu_ps(w + r * ld));
      store(backward + r * 16 + 8, _mm256_loadu_ps(w + r * ld + 8));
    }
    for (int c = 0; c < 16; c += 4) {
      __m256 columns[2][4];
      transpose_8x4(w + c, ld, columns[0]);
      transpose_8x4(w + 8 * ld + c, ld, columns[1]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        store(forward + (c + i) * 16, columns[0][i]);
        store(forward + (c + i) * 16 + 8, columns[1][i]);
      }
    }
  }
  // columns[c]: column c of 8 rows.
  static void transpose_8x4(const float* in, std::int64_t ld, __m256 (&columns)[4]) {
    __m256 rows[4];  // r: rows r and r + 4
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      rows[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(in + r * ld)),
                                     _mm_loadu_ps(in + (r + 4) * ld), 1);
    }
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[0], rows[1]));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[2], rows[3]));
    const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[0], rows[1]));
    const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[2], rows[3]));
    columns[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
    columns[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
    columns[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
    columns[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
  }
  static void store_fence() { _mm_sfence(); }
};

struct Vectors256 {
  using Packing = Packing256;
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
  static constexpr std::int64_t kMostTerms = 64;
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
  static constexpr std::int64_t kMostTerms = 0;
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
