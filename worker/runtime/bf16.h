// bfloat16: the upper 16 bits of an IEEE 754 binary32. Conversion rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace tilewright::runtime {

struct bf16 {  // NOLINT(readability-identifier-naming): named like the arithmetic types
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};
static_assert(sizeof(bf16) == 2);

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline float to_float(float x) { return x; }

// Source of the rounding: add half of the last kept place, plus its parity, to the dropped bits.
// NaN keeps its sign and becomes quiet.
inline bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <typename T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}

}  // namespace tilewright::runtime
