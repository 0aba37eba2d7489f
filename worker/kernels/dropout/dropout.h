// Which elements dropout keeps: a pure function of seed, step, site, example, row, head and column,
// so that nothing is stored and any worker on any instruction set decides alike.
//
// Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC'11): ten rounds over a 128-bit counter under a 64-bit key.
//   key      = number step + 1 of SplitMix64(seed) (worker/runtime/split_mix.h); its low word is
//   the
//              first. Bijective in the seed for every step.
//   counter  = {column / 64 * 8 + column % 16 / 2, row in its example, site | head << 16,
//               index of the example in the global batch}
//   decision = bits of output word column % 64 / 16: the low half for even columns, else the high
//              half; kept when they are at least `threshold`.
// A counter thus decides 8 elements, and 8 consecutive counters decide a block of 64 columns: word
// q of the eight, read as 16-bit numbers in memory order, are columns 16 q .. 16 q + 15 of the
// block, which is what a vector compare wants.
#pragma once

#include <array>
#include <cstdint>

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// A Dropout whose key is worked out. threshold 0 keeps everything.
struct DropoutStream {
  std::uint32_t key[2] = {0, 0};
  std::uint32_t site = 0;
  std::uint32_t threshold = 0;
  float scale = 1.0f;
};

// Columns that a block of 8 counters decides; a row's masks are one word a block.
inline constexpr std::int64_t kDropoutBlock = 64;

DropoutStream make_dropout_stream(const Dropout& dropout);

using PhiloxBlock = std::array<std::uint32_t, 4>;
PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key);

// Bit i of masks[c] is set when column 64 c + i of the row is kept; whole words are written, for
// ceil(columns / 64) blocks.
void dropout_masks_ref(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                       std::int32_t head, std::int64_t columns, std::uint64_t* masks);

}  // namespace tilewright::kernels
