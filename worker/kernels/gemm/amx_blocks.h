// Linear layers on AMX tiles. Included by gemm_amx.cpp (hardware) and amx_emulator.cpp (plain C++),
// so everything is in an unnamed namespace.
//
// A register tile of the output is 32 x 32: tile registers 0 to 3 accumulate its quarters,
//
//     0 | 1    rows 0 .. 15
//     --+--
//     2 | 3    rows 16 .. 31
//
// 4 and 5 hold 32 rows by 32 summed elements of the left operand, 6 and 7 hold 32 summed elements
// by 32 columns of the right operand. One dot product takes 32 summed elements, so the summed
// dimension is cut only at multiples of 32.
//
// Tiles is a thin type over the eight tile registers of 16 rows of 64 bytes:
//   zero<t>(), load<t>(p, stride), store<t>(p, stride)   strides in bytes
//   dot<c, a, b>()                                       c += a b, TDPBF16PS
//   round(sums, bias, out)                               32 floats to bf16, subnormals become zero
#pragma once

#include "worker/kernels/gemm/packing.h"
#include "worker/kernels/gemm/peak_operands.h"

namespace tilewright::kernels {
namespace {

constexpr int kAmxBlock = 32;     // rows and columns of a register tile, summed elements of a dot
constexpr int kAmxTileRows = 16;  // of a tile register; a row has 16 floats or 16 pairs of bf16
constexpr std::int64_t kAmxPairRowBytes = kAmxBlock * 2 * sizeof(bf16);  // a row of packed pairs

// Adds 32 summed elements. left: 32 rows, `stride` bytes apart; right: 16 rows of 32 pairs.
template <class Tiles>
inline void amx_dot(Tiles& tiles, const bf16* left, std::int64_t stride, const bf16* right) {
  tiles.template load<6>(right, kAmxPairRowBytes);
  tiles.template load<7>(right + kAmxBlock, kAmxPairRowBytes);
  tiles.template load<4>(left, stride);
  tiles.template dot<0, 4, 6>();
  tiles.template dot<1, 4, 7>();
  tiles.template load<5>(left + kAmxTileRows * stride / static_cast<std::int64_t>(sizeof(bf16)),
                         stride);
  tiles.template dot<2, 5, 6>();
  tiles.template dot<3, 5, 7>();
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
  constexpr std::int64_t kStride = kAmxBlock * sizeof(float);
  tiles.template store<0>(out, kStride);
  tiles.template store<1>(out + kAmxTileRows, kStride);
  tiles.template store<2>(out + kAmxTileRows * kAmxBlock, kStride);
  tiles.template store<3>(out + kAmxTileRows * kAmxBlock + kAmxTileRows, kStride);
}
template <class Tiles>
inline void amx_load(Tiles& tiles, const float* in) {
  constexpr std::int64_t kStride = kAmxBlock * sizeof(float);
  tiles.template load<0>(in, kStride);
  tiles.template load<1>(in + kAmxTileRows, kStride);
  tiles.template load<2>(in + kAmxTileRows * kAmxBlock, kStride);
  tiles.template load<3>(in + kAmxTileRows * kAmxBlock + kAmxTileRows, kStride);
}

template <class Tiles>
void amx_forward_tile(Tiles& tiles, const ForwardBlock<bf16>& block, std::int64_t row,
                      const bf16* panel, std::int64_t column) {
  const std::int64_t rows = block.rows - row < kAmxBlock ? block.rows - row : kAmxBlock;
  const std::int64_t columns =
      block.columns - column < kAmxBlock ? block.columns - column : kAmxBlock;
  const bf16* a = block.a + row * block.lda;
  bf16* y = block.y + row * block.ldy + column;
  // Prefetches the output lines while the sums are computed.
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(y + r * block.ldy, 1);
  amx_clear(tiles);
  std::int64_t i = 0;
  if (rows == kAmxBlock) {
    for (; i + kAmxBlock <= block.k; i += kAmxBlock) {
      amx_dot(tiles, a + i, block.lda * static_cast<std::int64_t>(sizeof(bf16)),
              panel + i * kAmxBlock);
    }
  }
  // Partial tiles are read from a zero-padded copy, so nothing outside `a` is read.
  for (; i < block.k; i += kAmxBlock) {
    alignas(64) bf16 left[kAmxBlock * kAmxBlock] = {};
    const std::int64_t width = block.k - i < kAmxBlock ? block.k - i : kAmxBlock;
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(left + r * kAmxBlock, a + r * block.lda + i,
                       static_cast<std::size_t>(width) * sizeof(bf16));
    }
    amx_dot(tiles, left, kAmxBlock * sizeof(bf16), panel + i * kAmxBlock);
  }
  alignas(64) float sums[kAmxBlock * kAmxBlock];
  amx_store(tiles, sums);
  alignas(64) float bias[kAmxBlock] = {};
  if (block.bias != nullptr) {
    for (std::int64_t c = 0; c < columns; ++c) bias[c] = block.bias[column + c];
  }
  for (std::int64_t r = 0; r < rows; ++r, y += block.ldy) {
    if (columns == kAmxBlock) {
      Tiles::round(sums + r * kAmxBlock, bias, y);
    } else {
      bf16 whole[kAmxBlock];
      Tiles::round(sums + r * kAmxBlock, bias, whole);
      __builtin_memcpy(y, whole, static_cast<std::size_t>(columns) * sizeof(bf16));
    }
  }
}

template <class Tiles>
void amx_forward(const ForwardBlock<bf16>& block) {
  Tiles tiles;
  const bf16* panel = block.panels;
  for (std::int64_t c = 0; c < block.columns; c += kAmxBlock, panel += block.panel_stride) {
    for (std::int64_t r = 0; r < block.rows; r += kAmxBlock) {
      amx_forward_tile(tiles, block, r, panel, c);
    }
  }
}

template <class Tiles>
void amx_weight_tile(Tiles& tiles, const WeightBlock<bf16>& block, const bf16* a, const bf16* b,
                     float* slots, float* dw, std::int64_t rows, std::int64_t columns) {
  constexpr int kSlot = kAmxBlock * kAmxBlock;
  for (std::int64_t s = 0; s < block.segment_count; ++s) {
    const Segment& segment = block.segments[s];
    if (segment.fresh) {
      amx_clear(tiles);
    } else {
      amx_load(tiles, slots + segment.level * kSlot);
    }
    for (std::int64_t g = 0; g < segment.groups; ++g) {
      const std::int64_t at = (segment.first_group + g) * kAmxBlock * kAmxBlock;
      amx_dot(tiles, a + at, kAmxBlock * sizeof(bf16), b + at);
    }
    const int merges = segment.local_merges + segment.merges;
    float* slot = (segment.local ? block.local : slots) + (segment.level - merges) * kSlot;
    float* right = merges > 0 ? block.local + segment.level * kSlot : slot;
    amx_store(tiles, right);
    for (int m = 1; m <= merges; ++m) {
      const float* left =
          (m <= segment.local_merges ? block.local : slots) + (segment.level - m) * kSlot;
      float* sum = m < merges ? right : slot;
      for (int i = 0; i < kSlot; ++i) sum[i] = left[i] + right[i];
    }
    if (segment.last) {
      for (std::int64_t r = 0; r < rows; ++r) {
        __builtin_memcpy(dw + r * block.ldw, slot + r * kAmxBlock,
                         static_cast<std::size_t>(columns) * sizeof(float));
      }
    }
  }
}

template <class Tiles>
void amx_weight(const WeightBlock<bf16>& block) {
  Tiles tiles;
  float* slots = block.slots;
  const bf16* b = block.b;
  for (std::int64_t c = 0; c < block.columns; c += kAmxBlock, b += block.b_stride) {
    const std::int64_t columns = block.columns - c < kAmxBlock ? block.columns - c : kAmxBlock;
    const bf16* a = block.a;
    for (std::int64_t r = 0; r < block.rows; r += kAmxBlock, a += block.a_stride) {
      const std::int64_t rows = block.rows - r < kAmxBlock ? block.rows - r : kAmxBlock;
      amx_weight_tile(tiles, block, a, b, slots, block.dw + r * block.ldw + c, rows, columns);
      slots += block.slot_count * kAmxBlock * kAmxBlock;
    }
  }
}

// Packs dy transposed, 32 tokens at a time: panel[tokens / 32][32 columns of dy][32 tokens].
template <class Packing>
void amx_pack_dy(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                 bf16* out, std::int64_t stride) {
  for (std::int64_t c = 0; c < columns; c += kAmxBlock, out += stride) {
    const std::int64_t width = columns - c < kAmxBlock ? columns - c : kAmxBlock;
    bf16* group = out;
    for (std::int64_t t = 0; t < tokens; t += kAmxBlock, group += kAmxBlock * kAmxBlock) {
      const std::int64_t rows = tokens - t < kAmxBlock ? tokens - t : kAmxBlock;
      if (width == kAmxBlock && rows == kAmxBlock) {
        Packing::transpose_block(in + t * ld + c, ld, group);
        continue;
      }
      __builtin_memset(static_cast<void*>(group), 0, kAmxBlock * kAmxBlock * sizeof(bf16));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < width; ++i) {
          group[i * kAmxBlock + r] = in[(t + r) * ld + c + i];
        }
      }
    }
  }
}

// Packs x in pairs of tokens as for VDPBF16PS, with the tokens padded to a multiple of 32.
template <class Packing>
void amx_pack_x(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                bf16* out, std::int64_t stride) {
  pack_tokens<Packing, kAmxBlock, 2>(in, ld, tokens, columns, out, stride);
  const std::int64_t written = round_up(tokens, 2);
  const std::int64_t padded = round_up(tokens, kAmxBlock);
  for (std::int64_t c = 0; c < columns; c += kAmxBlock, out += stride) {
    __builtin_memset(static_cast<void*>(out + written * kAmxBlock), 0,
                     static_cast<std::size_t>((padded - written) * kAmxBlock) * sizeof(bf16));
  }
}

template <class Tiles>
double amx_peak(std::int64_t rounds) {
  Tiles tiles;
  amx_clear(tiles);
  // Two tile registers hold the left operand and two the right one, as in amx_dot.
  constexpr int kTile = kAmxTileRows * kAmxBlock;
  alignas(64) bf16 operands[4 * kTile];
  fill_peak_operands(operands, 4 * kTile, 1);
  constexpr std::int64_t kStride = kAmxBlock * sizeof(bf16);
  tiles.template load<4>(operands, kStride);
  tiles.template load<5>(operands + kTile, kStride);
  tiles.template load<6>(operands + 2 * kTile, kStride);
  tiles.template load<7>(operands + 3 * kTile, kStride);
  for (std::int64_t i = 0; i < rounds; ++i) {
    tiles.template dot<0, 4, 6>();
    tiles.template dot<1, 4, 7>();
    tiles.template dot<2, 5, 6>();
    tiles.template dot<3, 5, 7>();
  }
  return static_cast<double>(rounds) * 2.0 * kAmxBlock * kAmxBlock * kAmxBlock;
}

template <class Tiles, class Packing>
constexpr Engine<bf16> make_amx_engine(const char* name) {
  Engine<bf16> engine;
  engine.name = name;
  engine.mr = kAmxBlock;
  engine.nr = kAmxBlock;
  engine.granularity = kAmxBlock;
  engine.forward = amx_forward<Tiles>;
  engine.weight = amx_weight<Tiles>;
  engine.pack_dy = amx_pack_dy<Packing>;
  engine.pack_x = amx_pack_x<Packing>;
  engine.add_rows = add_rows<bf16>;
  engine.peak = amx_peak<Tiles>;
  engine.pack_weight = pack_weight_panels<Packing, kAmxBlock, 2, kAmxBlock, bf16>;
  return engine;
}

}  // namespace
}  // namespace tilewright::kernels
