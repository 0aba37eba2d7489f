// bf16 linear layers with VDPBF16PS: two products per lane, added to an fp32 accumulator. The
// instruction rounds to nearest even and takes subnormals as zero, independent of MXCSR (Intel SDM
// vol. 2, VDPBF16PS).
#include <immintrin.h>

#include "worker/kernels/gemm/tiles.h"
#include "worker/kernels/gemm/vectors_avx512.h"
#include "worker/kernels/isa_entries.h"

namespace tilewright::kernels {
namespace {

struct Dot : Bf16Vectors512 {
  using Element = bf16;
  using Left = __m512bh;
  using Right = __m512bh;
  static constexpr int kGroup = 2;
  static constexpr std::int64_t kMostTerms = 0;
  static constexpr int kPhases = 1;
  static constexpr int kRows = 14;
  static constexpr int kVectors = 2;

  template <int>
  static Left load_a(const bf16* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  template <int>
  static Left load_a_last(const bf16* p) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(p->bits));
  }
  template <int>
  static Right load_b(const bf16* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static Vec multiply_add(Vec acc, Left a, Right b) { return _mm512_dpbf16_ps(acc, a, b); }
};

}  // namespace

constinit const Engine<bf16> kAvx512Bf16 = make_engine<Dot>("avx512_bf16 14x32");

}  // namespace tilewright::kernels
