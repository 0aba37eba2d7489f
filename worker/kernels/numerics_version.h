// The version of the kernels' results.
#pragma once

namespace tilewright::kernels {

// Raised by each change after which the same training gives other bits: the order of a sum or of
// the examples, a polynomial, a rounding. Workers of different versions, and checkpoints of another
// one, do not mix.
inline constexpr int kNumericsVersion = 6;

}  // namespace tilewright::kernels
