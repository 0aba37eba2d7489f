// Linear layers on AMX tiles, for gemm_amx.cpp (the hardware) and amx_twin.cpp (plain C++ with the
// same meaning) to include: everything is in an unnamed namespace.
//
// A register tile of the output is 32 x 32: tiles 0 .. 3 accumulate its quarters, tiles 4 and 5
// hold 32 rows by 32 summed elements of the left operand, tiles 6 and 7 32 summed elements by 32
// columns of the right one. One dot product takes 32 summed elements, so these are never cut
// elsewhere.
//
// Tiles is a thin type over the eight tile registers, all of 16 rows of 64 bytes:
//   zero<t>(), load<t>(p, stride), store<t>(p, stride) with strides in bytes, dot<c, a, b>()
// and how the hardware rounds: round(sums, bias, out), 32 floats each to bf16, denormals to zero.
#pragma once

#include "worker/kernels/gemm/packing.h"

namespace tilewright::kernels {
namespace {

constexpr int kAmxSide = 32;  // rows and columns of a register tile, summed elements of a dot
constexpr int kAmxTile = 16;  // rows of a tile register; it has 16 floats or 16 pairs of bf16 each
constexpr std::int64_t kAmxRight = kAmxSide * 2 * sizeof(bf16);  // bytes of a row of packed pairs

// Adds 32 summed elements: `left` 32 rows `stride` bytes apart, `right` 16 rows of 32 pairs.
template <class Tiles>
inline void amx_dot(Tiles& tiles, const bf16* left, std::int64_t stride, const bf16* right) {
  tiles.template load<6>(right, kAmxRight);
  tiles.template load<7>(right + kAmxSide, kAmxRight);
  tiles.template load<4>(left, stride);
  tiles.template dot<0, 4, 6>();
  tiles.template dot<1, 4, 7>();
  tiles.template load<5>(left + kAmxTile * stride / static_cast<std::int64_t>(sizeof(bf16)),
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

// The accumulators to and from 32 x 32 floats.
template <class Tiles>
inline void amx_store(Tiles& tiles, float* out) {
  constexpr std::int64_t kStride = kAmxSide * sizeof(float);
  tiles.template store<0>(out, kStride);
  tiles.template store<1>(out + kAmxTile, kStride);
  tiles.template store<2>(out + kAmxTile * kAmxSide, kStride);
  tiles.template store<3>(out + kAmxTile * kAmxSide + kAmxTile, kStride);
}
template <class Tiles>
inline void amx_load(Tiles& tiles, const float* in) {
  constexpr std::int64_t kStride = kAmxSide * sizeof(float);
  tiles.template load<0>(in, kStride);
  tiles.template load<1>(in + kAmxTile, kStride);
  tiles.template load<2>(in + kAmxTile * kAmxSide, kStride);
  tiles.template load<3>(in + kAmxTile * kAmxSide + kAmxTile, kStride);
}

template <class Tiles>
void amx_forward_tile(Tiles& tiles, const ForwardBlock<bf16>& block, std::int64_t row,
                      const bf16* panel, std::int64_t column) {
  const std::int64_t rows = block.rows - row < kAmxSide ? block.rows - row : kAmxSide;
  const std::int64_t columns =
      block.columns - column < kAmxSide ? block.columns - column : kAmxSide;
  const bf16* a = block.a + row * block.lda;
  bf16* y = block.y + row * block.ldy + column;
  // The lines that the sums will be written to come while they are made.
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(y + r * block.ldy, 1);
  amx_clear(tiles);
  std::int64_t i = 0;
  if (rows == kAmxSide) {
    for (; i + kAmxSide <= block.k; i += kAmxSide) {
      amx_dot(tiles, a + i, block.lda * static_cast<std::int64_t>(sizeof(bf16)),
              panel + i * kAmxSide);
    }
  }
  // What no full tile covers goes through a copy padded with zeros: nothing outside `a` is read.
  for (; i < block.k; i += kAmxSide) {
    alignas(64) bf16 left[kAmxSide * kAmxSide] = {};
    const std::int64_t width = block.k - i < kAmxSide ? block.k - i : kAmxSide;
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(left + r * kAmxSide, a + r * block.lda + i,
                       static_cast<std::size_t>(width) * sizeof(bf16));
    }
    amx_dot(tiles, left, kAmxSide * sizeof(bf16), panel + i * kAmxSide);
  }
  alignas(64) float sums[kAmxSide * kAmxSide];
  amx_store(tiles, sums);
  alignas(64) float bias[kAmxSide] = {};
  if (block.bias != nullptr) {
    for (std::int64_t c = 0; c < columns; ++c) bias[c] = block.bias[column + c];
  }
  for (std::int64_t r = 0; r < rows; ++r, y += block.ldy) {
    if (columns == kAmxSide) {
      Tiles::round(sums + r * kAmxSide, bias, y);
    } else {
      bf16 whole[kAmxSide];
      Tiles::round(sums + r * kAmxSide, bias, whole);
      __builtin_memcpy(y, whole, static_cast<std::size_t>(columns) * sizeof(bf16));
    }
  }
}

template <class Tiles>
void amx_forward(const ForwardBlock<bf16>& block) {
  Tiles tiles;
  const bf16* panel = block.panels;
  for (std::int64_t c = 0; c < block.columns; c += kAmxSide, panel += block.panel_stride) {
    for (std::int64_t r = 0; r < block.rows; r += kAmxSide) {
      amx_forward_tile(tiles, block, r, panel, c);
    }
  }
}

template <class Tiles>
void amx_weight_tile(Tiles& tiles, const WeightBlock<bf16>& block, const bf16* a, const bf16* b,
                     float* slots, float* dw, std::int64_t rows, std::int64_t columns) {
  constexpr int kSlot = kAmxSide * kAmxSide;
  for (std::int64_t s = 0; s < block.segment_count; ++s) {
    const Segment& segment = block.segments[s];
    if (segment.fresh) {
      amx_clear(tiles);
    } else {
      amx_load(tiles, slots + segment.level * kSlot);
    }
    for (std::int64_t g = 0; g < segment.groups; ++g) {
      const std::int64_t at = (segment.first_group + g) * kAmxSide * kAmxSide;
      amx_dot(tiles, a + at, kAmxSide * sizeof(bf16), b + at);
    }
    const int merges = segment.near_merges + segment.merges;
    float* slot = (segment.near ? block.near : slots) + (segment.level - merges) * kSlot;
    float* right = merges > 0 ? block.near + segment.level * kSlot : slot;
    amx_store(tiles, right);
    for (int m = 1; m <= merges; ++m) {
      const float* left =
          (m <= segment.near_merges ? block.near : slots) + (segment.level - m) * kSlot;
      float* sum = m < merges ? right : slot;
      for (int i = 0; i < kSlot; ++i) sum[i] = left[i] + right[i];
    }
    if (segment.last) {
      for (std::int64_t r = 0; r < rows; ++r) {
        __builtin_memcpy(dw + r * block.ldw, slot + r * kAmxSide,
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
  for (std::int64_t c = 0; c < block.columns; c += kAmxSide, b += block.b_stride) {
    const std::int64_t columns = block.columns - c < kAmxSide ? block.columns - c : kAmxSide;
    const bf16* a = block.a;
    for (std::int64_t r = 0; r < block.rows; r += kAmxSide, a += block.a_stride) {
      const std::int64_t rows = block.rows - r < kAmxSide ? block.rows - r : kAmxSide;
      amx_weight_tile(tiles, block, a, b, slots, block.dw + r * block.ldw + c, rows, columns);
      slots += block.slot_count * kAmxSide * kAmxSide;
    }
  }
}

// dy transposed, 32 tokens at a time: panel[tokens / 32][32 columns of dy][32 tokens].
template <class Packing>
void amx_pack_dy(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                 bf16* out, std::int64_t stride) {
  for (std::int64_t c = 0; c < columns; c += kAmxSide, out += stride) {
    const std::int64_t width = columns - c < kAmxSide ? columns - c : kAmxSide;
    bf16* group = out;
    for (std::int64_t t = 0; t < tokens; t += kAmxSide, group += kAmxSide * kAmxSide) {
      const std::int64_t rows = tokens - t < kAmxSide ? tokens - t : kAmxSide;
      if (width == kAmxSide && rows == kAmxSide) {
        Packing::transpose_block(in + t * ld + c, ld, group);
        continue;
      }
      __builtin_memset(static_cast<void*>(group), 0, kAmxSide * kAmxSide * sizeof(bf16));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < width; ++i) {
          group[i * kAmxSide + r] = in[(t + r) * ld + c + i];
        }
      }
    }
  }
}

// x in pairs as for VDPBF16PS, tokens padded to 32.
template <class Packing>
void amx_pack_x(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                bf16* out, std::int64_t stride) {
  pack_tokens<Packing, kAmxSide, 2>(in, ld, tokens, columns, out, stride);
  const std::int64_t written = round_up(tokens, 2);
  const std::int64_t padded = round_up(tokens, kAmxSide);
  for (std::int64_t c = 0; c < columns; c += kAmxSide, out += stride) {
    __builtin_memset(static_cast<void*>(out + written * kAmxSide), 0,
                     static_cast<std::size_t>((padded - written) * kAmxSide) * sizeof(bf16));
  }
}

template <class Tiles>
double amx_peak(std::int64_t rounds) {
  Tiles tiles;
  amx_clear(tiles);
  tiles.template zero<4>();
  tiles.template zero<5>();
  tiles.template zero<6>();
  tiles.template zero<7>();
  for (std::int64_t i = 0; i < rounds; ++i) {
    tiles.template dot<0, 4, 6>();
    tiles.template dot<1, 4, 7>();
    tiles.template dot<2, 5, 6>();
    tiles.template dot<3, 5, 7>();
  }
  return static_cast<double>(rounds) * 2.0 * kAmxSide * kAmxSide * kAmxSide;
}

template <class Tiles, class Packing>
constexpr Engine<bf16> make_amx_engine(const char* name) {
  Engine<bf16> engine;
  engine.name = name;
  engine.mr = kAmxSide;
  engine.nr = kAmxSide;
  engine.granularity = kAmxSide;
  engine.forward = amx_forward<Tiles>;
  engine.weight = amx_weight<Tiles>;
  engine.pack_dy = amx_pack_dy<Packing>;
  engine.pack_x = amx_pack_x<Packing>;
  engine.add_rows = add_rows<bf16>;
  engine.peak = amx_peak<Tiles>;
  engine.pack_weight = pack_weight_panels<Packing, kAmxSide, 2, kAmxSide, bf16>;
  return engine;
}

}  // namespace
}  // namespace tilewright::kernels
