// Arithmetic with sizes. Also included by the files of one instruction set and compiled with their
// flags, so everything is in an unnamed namespace.
#pragma once

#include <cstdint>

namespace tilewright::kernels {
namespace {

// x / unit, rounded up. x is at least 0.
constexpr std::int64_t ceil_div(std::int64_t x, std::int64_t unit) { return (x + unit - 1) / unit; }
// The least multiple of `unit` from x on. x is at least 0.
constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return ceil_div(x, unit) * unit;
}
// Unlike std::min it is not shared with the files of other instruction sets.
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

}  // namespace
}  // namespace tilewright::kernels
