// Linear layers in bf16 with VDPBF16PS: two products a lane, added to an fp32 accumulator. The
// instruction rounds to nearest even and treats denormals as zero whatever MXCSR says (Intel SDM
// vol. 2, VDPBF16PS).
#include <immintrin.h>

#include "worker/kernels/gemm/tiles.h"
#include "worker/kernels/gemm/vectors_avx512.h"

namespace tilewright::kernels {
namespace {

struct Dot : RoundedStores512<Dot> {
  using T = bf16;
  using A = __m512bh;
  using B = __m512bh;
  static constexpr int kGroup = 2;
  static constexpr int kPhases = 1;
  static constexpr int kRows = 14;
  static constexpr int kVectors = 2;

  template <int>
  static A load_a(const bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  template <int>
  static A load_a_last(const bf16* p) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(p->bits));
  }
  template <int>
  static B load_b(const bf16* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static Vec multiply_add(Vec acc, A a, B b) { return _mm512_dpbf16_ps(acc, a, b); }
  static __m256i rounded(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
};

}  // namespace

constinit const Engine<bf16> kAvx512Bf16 = make_engine<Dot>("avx512_bf16 14x32");

}  // namespace tilewright::kernels
