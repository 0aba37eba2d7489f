// Operands for Engine::peak. With zeros a CPU draws less power, and may clock higher, than in any
// product of a training. In an unnamed namespace, because files of several instruction sets include
// it.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"

namespace tilewright::kernels {
namespace {

inline void set_operand(float& value, float x) { value = x; }
inline void set_operand(runtime::bf16& value, float x) { value = runtime::to_bf16(x); }

// Random values of magnitude 1/2 to 1 with random signs. 10^6 sums of their products stay finite.
template <typename Element>
void fill_peak_operands(Element* values, int count, std::uint32_t seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;  // linear congruential generator of Numerical Recipes
    // Bits of a float: sign, exponent of [1/2, 1), 23 random bits. The upper 7 also fill a bf16.
    const std::uint32_t bits = (seed & 0x80000000u) | 0x3f000000u | ((seed >> 8) & 0x7f0000u);
    set_operand(values[i], __builtin_bit_cast(float, bits));
  }
}

}  // namespace
}  // namespace tilewright::kernels
