// The steps of products on AMX tiles. Like the other amx_*.h included by gemm_amx.cpp (hardware)
// and amx_emulator.cpp (plain C++), so everything is in an unnamed namespace.
//
// A register tile of the output is 32 x 32: tile registers 0 to 3 accumulate its quarters,
//
//     0 | 1    rows 0 .. 15
//     --+--
//     2 | 3    rows 16 .. 31
//
// 4 and 5 hold 32 rows by 32 summed elements of the left operand, 6 and 7 hold 32 summed elements
// by 32 columns of the right operand. One step takes 32 summed elements, so the summed dimension is
// cut only at multiples of 32.
//
// Tiles is a thin type over the eight tile registers of 16 rows of 64 bytes:
//   zero<t>(), load<t>(p, stride), store<t>(p, stride)   strides in bytes
//   stream<t>(p, stride)                                 a load that leaves the L1 cache as it is
//   dot<c, a, b>()                                       c += a b, TDPBF16PS
//   round(sums, bias, out)                               32 floats to bf16, subnormals become zero
//
// Where the operands of a step come from decides the speed. The four dots of a step take 64 cycles.
// One operand stays in the L1 cache while many blocks of the other one are streamed past it from
// the L2 cache: in amx_forward 32 rows stay, in amx_weight a part of a panel. Other work goes
// between the steps, a little in each: what is used next is prefetched, and the sums of the
// previous tile are rounded or merged. After the last step of a tile, its loads and stores would
// wait for the tile's stores, and the next tile's loads for them.
#pragma once

#include "worker/kernels/gemm/packing.h"

namespace tilewright::kernels {
namespace {

constexpr int kAmxBlock = 32;     // rows and columns of a register tile, summed elements of a step
constexpr int kAmxTileRows = 16;  // of a tile register; a row has 16 floats or 16 pairs of bf16
constexpr std::int64_t kAmxElements = kAmxBlock * kAmxBlock;     // of a packed block and of a tile
constexpr std::int64_t kAmxRowBytes = kAmxBlock * sizeof(bf16);  // of a packed left row
constexpr std::int64_t kAmxHalf = kAmxElements / 2;              // of a right block: 16 columns
constexpr std::int64_t kAmxSumRowBytes = kAmxBlock * sizeof(float);

constexpr std::int64_t amx_blocks(std::int64_t x) { return ceil_div(x, kAmxBlock); }

// 32 rows of the left operand, `row` bytes apart; the elements of the next step are `step` elements
// further.
struct AmxRows {
  const bf16* p;
  std::int64_t row;
  std::int64_t step;
  AmxRows from(std::int64_t steps) const { return {p + steps * step, row, step}; }
};
inline AmxRows amx_packed_rows(const bf16* p) { return {p, kAmxRowBytes, kAmxElements}; }

// Adds `steps` products. right: [step][2 halves][16 pairs][16 columns][2], so that a tile is
// contiguous. A streamed operand does not displace the other one from the L1 cache. ahead() is
// called once per step.
template <bool kStreamLeft, bool kStreamRight, class Tiles, class Ahead>
inline void amx_accumulate(Tiles& tiles, AmxRows left, const bf16* right, std::int64_t steps,
                           Ahead& ahead) {
  const auto load = [&]<int t, bool kStream>(const void* from, std::int64_t stride) {
    if constexpr (kStream) {
      tiles.template stream<t>(from, stride);
    } else {
      tiles.template load<t>(from, stride);
    }
  };
  const bf16* low = left.p;
  const bf16* high = left.p + kAmxTileRows * left.row / static_cast<std::int64_t>(sizeof(bf16));
  for (; steps > 0; --steps, low += left.step, high += left.step, right += kAmxElements) {
    load.template operator()<6, kStreamRight>(right, kAmxRowBytes);
    load.template operator()<4, kStreamLeft>(low, left.row);
    tiles.template dot<0, 4, 6>();
    load.template operator()<7, kStreamRight>(right + kAmxHalf, kAmxRowBytes);
    tiles.template dot<1, 4, 7>();
    load.template operator()<5, kStreamLeft>(high, left.row);
    tiles.template dot<2, 5, 6>();
    tiles.template dot<3, 5, 7>();
    ahead();
  }
}

template <class Tiles>
inline void amx_clear(Tiles& tiles) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
}

// Stores and loads the accumulators as 32 x 32 floats.
template <class Tiles>
inline void amx_store(Tiles& tiles, float* out) {
  tiles.template store<0>(out, kAmxSumRowBytes);
  tiles.template store<1>(out + kAmxTileRows, kAmxSumRowBytes);
  tiles.template store<2>(out + kAmxTileRows * kAmxBlock, kAmxSumRowBytes);
  tiles.template store<3>(out + kAmxTileRows * kAmxBlock + kAmxTileRows, kAmxSumRowBytes);
}
template <class Tiles>
inline void amx_load(Tiles& tiles, const float* in) {
  tiles.template load<0>(in, kAmxSumRowBytes);
  tiles.template load<1>(in + kAmxTileRows, kAmxSumRowBytes);
  tiles.template load<2>(in + kAmxTileRows * kAmxBlock, kAmxSumRowBytes);
  tiles.template load<3>(in + kAmxTileRows * kAmxBlock + kAmxTileRows, kAmxSumRowBytes);
}

// Packs incomplete rows to whole blocks of 32 x 32, zero-padded, so nothing outside `a` is read.
inline AmxRows amx_pack_rows(const bf16* a, std::int64_t lda, std::int64_t rows, std::int64_t k,
                             bf16* out) {
  const std::int64_t steps = amx_blocks(k);
  __builtin_memset(static_cast<void*>(out), 0,
                   static_cast<std::size_t>(steps * kAmxElements) * sizeof(bf16));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t s = 0; s < steps; ++s) {
      __builtin_memcpy(
          out + s * kAmxElements + r * kAmxBlock, a + r * lda + s * kAmxBlock,
          static_cast<std::size_t>(smaller(kAmxBlock, k - s * kAmxBlock)) * sizeof(bf16));
    }
  }
  return amx_packed_rows(out);
}

// Steps of an operand that stay in the L1 cache: 40 of 48 KB, because stores would evict more. The
// others are streamed.
constexpr std::int64_t kAmxResidentSteps = 20;

}  // namespace
}  // namespace tilewright::kernels
