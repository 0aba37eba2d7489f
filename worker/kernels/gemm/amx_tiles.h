// The AMX tile registers. Included by the files compiled for AMX, so everything is in an unnamed
// namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {
namespace {

using runtime::bf16;

// The tile registers of this thread, configured during the lifetime of the object. Inline assembly
// because GCC's intrinsics require literal register numbers; these are template arguments.
class HardwareTiles {
 public:
  HardwareTiles() {
    struct alignas(64) {  // the layout of LDTILECFG's operand, palette 1
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    // GCC's _tile_loadconfig declares only the first eight bytes as read, so the compiler may drop
    // the stores to the others.
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~HardwareTiles() { asm volatile("tilerelease"); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int t>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  template <int t>
  void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  void stream(const void* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(t) : "memory");
  }
  template <int c, int a, int b>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  static void round(const float* sums, const float* bias, bf16* out) {
    const __m512 low = _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_loadu_ps(bias));
    const __m512 high = _mm512_add_ps(_mm512_loadu_ps(sums + 16), _mm512_loadu_ps(bias + 16));
    _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
};

}  // namespace
}  // namespace tilewright::kernels
