// The part of a tile policy (tiles.h) that AVX-512 files share.
#pragma once

#include <immintrin.h>

#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels {
namespace {

struct Vectors512 {
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
