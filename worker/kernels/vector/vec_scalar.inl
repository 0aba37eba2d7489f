// The vector type of the reference kernels: one float. mul_add is not fused, because the portable
// path may use only instructions of the compiler's baseline.
#include <cstdint>

namespace tilewright::kernels {
namespace {

using Vec = float;
using Mask = bool;
inline constexpr int kLanes = 1;

inline Vec broadcast(float x) { return x; }
inline Vec mul_add(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec absolute(Vec x) { return x < 0 ? -x : x; }
inline Vec maximum(Vec lower, Vec x) { return x < lower ? lower : x; }
inline Vec minimum(Vec upper, Vec x) { return upper < x ? upper : x; }
inline Mask less(Vec a, Vec b) { return a < b; }
inline Vec select(Mask mask, Vec yes, Vec no) { return mask ? yes : no; }

// Adding 1.5 * 2^23 leaves no bits for a fraction, which rounds to nearest even for |x| < 2^22.
inline Vec round_to_integer(Vec x) {
  const float shifted = x + 12582912.0f;
  return shifted - 12582912.0f;
}

inline Vec rounded_down(Vec x) {
  const float nearest = round_to_integer(x);
  return nearest > x ? nearest - 1.0f : nearest;
}
inline Vec fraction(Vec x) { return x - rounded_down(x); }

// x 2^n for an integer n if the result is a normal number, otherwise unspecified.
inline Vec scale_by_power(Vec x, Vec n) {
  if (!(n >= -126.0f && n <= 0.0f)) return x;
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits += static_cast<std::uint32_t>(static_cast<std::int32_t>(n)) << 23;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
// x 2^m, m = n rounded down, if m is in [-126, 0]; zero below.
inline Vec scale_by_power_down(Vec x, Vec n) {
  return n < -126.0f ? 0.0f : scale_by_power(x, rounded_down(n));
}

}  // namespace
}  // namespace tilewright::kernels
