// Computes dropout masks. A mask is a pure function of seed, step, site, example, row, head and
// column, so nothing is stored and every worker and instruction set computes the same mask.
//
// Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC'11): ten rounds over a 128-bit counter under a 64-bit key.
//   key      = number step + 1 of SplitMix64(seed) (worker/runtime/split_mix.h), low word first.
//              For every step a bijection of the seed.
//   counter  = {column / 64 * 8 + column % 16 / 2, row in its example, site | head << 16,
//               index of the example in the global batch}
//   decision = 16 bits of output word column % 64 / 16: the low half for even columns, else the
//              high half. The element is kept if they are at least `threshold`.
// So one counter decides 8 elements, and 8 consecutive counters decide a block of 64 columns: word
// q of the eight, read as 16-bit numbers in memory order, holds columns 16 q .. 16 q + 15 of the
// block. A vector comparison needs this order.
#pragma once

#include <array>
#include <cstdint>

#include "worker/kernels/ops.h"

namespace tilewright::kernels {

// A Dropout with its computed key. threshold 0 keeps every element.
struct DropoutStream {
  std::uint32_t key[2] = {0, 0};
  std::uint32_t site = 0;
  std::uint32_t threshold = 0;
  float scale = 1.0f;
};

// Columns per block of 8 counters; a row of masks has one 64-bit word per block.
inline constexpr std::int64_t kDropoutBlock = 64;

DropoutStream make_dropout_stream(const Dropout& dropout);

using PhiloxBlock = std::array<std::uint32_t, 4>;
PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key);

// Sets bit i of masks[c] if column 64 c + i of the row is kept. Writes ceil(columns / 64) words.
void dropout_masks_ref(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                       std::int32_t head, std::int64_t columns, std::uint64_t* masks);

}  // namespace tilewright::kernels
