// Operands for Engine::peak. With zeros a CPU draws less power, and may clock higher, than in any
// product of a training. In an unnamed namespace, because files of several instruction sets include
// it.
#pragma once

#include <cstdint>

#include "worker/runtime/bf16.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::kernels {
namespace {

inline void set_operand(float& value, float x) { value = x; }
inline void set_operand(runtime::bf16& value, float x) { value = runtime::to_bf16(x); }

// Random values of magnitude 1/2 to 1 with random signs. 10^6 sums of their products stay finite.
template <typename Element>
void fill_peak_operands(Element* values, int count, std::uint64_t seed) {
  runtime::SplitMix64 random(seed);
  for (int i = 0; i < count; ++i) {
    // Bits of a float: sign, exponent of [1/2, 1), 7 random bits, which also fill a bf16.
    const auto drawn = static_cast<std::uint32_t>(random.next() >> 32);
    const std::uint32_t bits = (drawn & 0x807f0000u) | 0x3f000000u;
    set_operand(values[i], __builtin_bit_cast(float, bits));
  }
}

}  // namespace
}  // namespace tilewright::kernels
