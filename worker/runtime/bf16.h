// The bfloat16 type: the upper 16 bits of an IEEE 754 binary32. Conversion rounds to nearest, ties
// to even; unit round-off 2^-8.
#pragma once

#include <bit>
#include <cstdint>

namespace tilewright::runtime {

struct bf16 {  // NOLINT(readability-identifier-naming): named like the arithmetic types
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};
static_assert(sizeof(bf16) == 2);

// Always inlined: the files of one instruction set use these functions too and must not define a
// copy that the linker could pick for all (worker/kernels/CMakeLists.txt).
[[gnu::always_inline]] inline float to_float(bf16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}
[[gnu::always_inline]] inline float to_float(float x) { return x; }

// The definition of bf16 rounding; vector forms (worker/kernels/math/bf16_*.h) return the same
// bits. Adds half a unit in the last kept place minus one, plus the parity of that place, and
// truncates. NaN keeps its sign and becomes quiet. The code has no branch, so that compilers can
// vectorize it.
[[gnu::always_inline]] inline bf16 to_bf16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded)};
}

template <typename Element>
Element from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}

}  // namespace tilewright::runtime
