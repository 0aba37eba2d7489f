// Packing, peak and engine of linear layers on AMX tiles.
#pragma once

#include "worker/kernels/gemm/amx_forward.h"
#include "worker/kernels/gemm/amx_weight.h"
#include "worker/kernels/gemm/packing.h"
#include "worker/kernels/gemm/peak_operands.h"

namespace tilewright::kernels {
namespace {

// Packs dy transposed, 32 tokens at a time: panel[tokens / 32][32 columns of dy][32 tokens].
template <class Packing>
void amx_pack_dy(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                 bf16* out, std::int64_t stride) {
  for (std::int64_t t = 0; t < tokens; t += kAmxBlock, out += kAmxElements) {
    const std::int64_t rows = smaller(tokens - t, kAmxBlock);
    bf16* group = out;
    for (std::int64_t c = 0; c < columns; c += kAmxBlock, group += stride) {
      const std::int64_t width = smaller(columns - c, kAmxBlock);
      if (width == kAmxBlock && rows == kAmxBlock) {
        Packing::transpose_block(in + t * ld + c, ld, group);
        continue;
      }
      __builtin_memset(static_cast<void*>(group), 0, kAmxElements * sizeof(bf16));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < width; ++i) {
          group[i * kAmxBlock + r] = in[(t + r) * ld + c + i];
        }
      }
    }
  }
}

// Packs a right block of up to 32 rows, the summed dimension, and up to 32 columns, zero-padded.
template <class Packing, typename In>
void amx_pack_right(const In* in, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                    bf16* out) {
  if (rows >= kAmxBlock && columns >= kAmxBlock) {
    for (std::int64_t r = 0; r < kAmxBlock; r += 2, out += kAmxBlock) {
      Packing::interleave_halves(in + r * ld, in + (r + 1) * ld, out, out + kAmxHalf);
    }
    return;
  }
  __builtin_memset(static_cast<void*>(out), 0, kAmxElements * sizeof(bf16));
  for (std::int64_t r = 0; r < smaller(rows, kAmxBlock); ++r) {
    for (std::int64_t c = 0; c < smaller(columns, kAmxBlock); ++c) {
      narrow(in[r * ld + c],
             out[c / kAmxTileRows * kAmxHalf + r / 2 * kAmxBlock + c % kAmxTileRows * 2 + r % 2]);
    }
  }
}

// Packs panels of x, 32 tokens at a time, for all columns: rows are read once.
template <class Packing>
void amx_pack_x(const bf16* in, std::int64_t ld, std::int64_t tokens, std::int64_t columns,
                bf16* out, std::int64_t stride) {
  for (std::int64_t t = 0; t < tokens; t += kAmxBlock, out += kAmxElements) {
    bf16* group = out;
    for (std::int64_t c = 0; c < columns; c += kAmxBlock, group += stride) {
      amx_pack_right<Packing>(in + t * ld + c, ld, tokens - t, columns - c, group);
    }
  }
}

// As Engine::pack_weight.
template <class Packing>
void amx_pack_weight(const float* w, std::int64_t n, std::int64_t k, std::int64_t begin,
                     std::int64_t end, bf16* forward, bf16* backward) {
  const std::int64_t k_blocks = amx_blocks(k);
  const std::int64_t n_blocks = amx_blocks(n);
  for (std::int64_t row = begin; row < end; row += kAmxBlock) {
    const std::int64_t rows = smaller(n - row, kAmxBlock);
    for (std::int64_t c = 0; c < k; c += kAmxBlock) {
      const float* from = w + row * k + c;
      bf16* const to_forward =
          forward + (row / kAmxBlock * k_blocks + c / kAmxBlock) * kAmxElements;
      bf16* const to_backward =
          backward + (c / kAmxBlock * n_blocks + row / kAmxBlock) * kAmxElements;
      if (rows == kAmxBlock && k - c >= kAmxBlock) {
        Packing::pack_weight_blocks(from, k, to_forward, to_backward);
        continue;
      }
      amx_pack_right<Packing>(from, k, rows, k - c, to_backward);
      __builtin_memset(static_cast<void*>(to_forward), 0, kAmxElements * sizeof(bf16));
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < smaller(k - c, kAmxBlock); ++i) {
          narrow(from[r * k + i], to_forward[r / kAmxTileRows * kAmxHalf + i / 2 * kAmxBlock +
                                             r % kAmxTileRows * 2 + i % 2]);
        }
      }
    }
  }
  Packing::store_fence();
}

template <class Tiles>
double amx_peak(std::int64_t rounds) {
  Tiles tiles;
  amx_clear(tiles);
  // Two tile registers hold the left operand and two the right one, as in amx_accumulate.
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
  engine.forward_scratch = amx_forward_scratch;
  engine.panels_stay_in_l2 = true;
  engine.packs_x_once = true;
  engine.weight = amx_weight<Tiles, Packing>;
  engine.pack_dy = amx_pack_dy<Packing>;
  engine.pack_x = amx_pack_x<Packing>;
  engine.add_rows = add_rows<bf16>;
  engine.peak = amx_peak<Tiles>;
  engine.pack_weight = amx_pack_weight<Packing>;
  return engine;
}

}  // namespace
}  // namespace tilewright::kernels
