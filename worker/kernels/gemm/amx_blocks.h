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
// by 32 columns of the right operand. One step takes 32 summed elements, so the summed dimension is
// cut only at multiples of 32.
//
// Tiles is a thin type over the eight tile registers of 16 rows of 64 bytes:
//   zero<t>(), load<t>(p, stride), store<t>(p, stride)   strides in bytes
//   stream<t>(p, stride)                                 a load that leaves the L1 cache as it is
//   dot<c, a, b>()                                       c += a b, TDPBF16PS
//   round(sums, bias, out)                               32 floats to bf16, subnormals become zero
//   prefetch_for_write(p)
//
// Where the operands of a step come from decides the speed. The four dots of a step take 64 cycles.
// One operand stays in the L1 cache while many blocks of the other one are streamed past it from the
// L2 cache: in amx_forward 32 rows stay, in amx_weight a part of a panel. What is used next is
// prefetched evenly over the steps.
#pragma once

#include "worker/kernels/gemm/packing.h"
#include "worker/kernels/gemm/peak_operands.h"

namespace tilewright::kernels {
namespace {

constexpr int kAmxBlock = 32;     // rows and columns of a register tile, summed elements of a step
constexpr int kAmxTileRows = 16;  // of a tile register; a row has 16 floats or 16 pairs of bf16
constexpr std::int64_t kAmxElements = kAmxBlock * kAmxBlock;     // of a packed block and of a tile
constexpr std::int64_t kAmxRowBytes = kAmxBlock * sizeof(bf16);  // of a packed left row
constexpr std::int64_t kAmxHalf = kAmxElements / 2;              // of a right block: 16 columns
constexpr std::int64_t kAmxSumRowBytes = kAmxBlock * sizeof(float);
constexpr std::int64_t kCacheLine = 64;

constexpr std::int64_t amx_blocks(std::int64_t x) { return (x + kAmxBlock - 1) / kAmxBlock; }
constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

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

// What amx_forward does during the steps of a tile: it prefetches the next 32 rows of the left
// operand into the L2 cache, and rounds the sums of the previous tile to y, a few rows per step, so
// that the stores do not hold up the tile loads.
template <class Tiles>
class AmxForwardAhead {
 public:
  void prefetch(const bf16* rows, std::int64_t bytes, std::int64_t lines_per_step) {
    next_ = reinterpret_cast<const char*>(rows);
    next_end_ = next_ + bytes;
    lines_per_step_ = lines_per_step;
  }
  // Writes the rest of the previous tile. Returns where to store the sums of the next one.
  float* finish() {
    while (row_ < rows_) write_row();
    return sums_;
  }
  // The stored sums plus `bias`, which may be null, are written to y within `steps`.
  void begin(const float* bias, bf16* y, std::int64_t ldy, std::int64_t rows, std::int64_t columns,
             std::int64_t steps) {
    y_ = y;
    ldy_ = ldy;
    row_ = 0;
    rows_ = rows;
    columns_ = columns;
    rows_per_step_ = (kAmxBlock + steps - 1) / steps;
    bias_ = padded_bias_;
    if (bias != nullptr && columns == kAmxBlock) {
      bias_ = bias;
      return;
    }
    for (std::int64_t i = 0; i < kAmxBlock; ++i) {
      padded_bias_[i] = bias != nullptr && i < columns ? bias[i] : 0.0f;
    }
  }

  void operator()() {
    for (std::int64_t i = 0; i < lines_per_step_ && next_ < next_end_; ++i, next_ += kCacheLine) {
      __builtin_prefetch(next_, 0, 2);
    }
    for (std::int64_t i = 0; i < rows_per_step_ && row_ < rows_; ++i) write_row();
  }

 private:
  void write_row() {
    const float* const sums = sums_ + row_ * kAmxBlock;
    if (columns_ == kAmxBlock) {
      Tiles::round(sums, bias_, y_);
    } else {
      bf16 whole[kAmxBlock];
      Tiles::round(sums, bias_, whole);
      __builtin_memcpy(y_, whole, static_cast<std::size_t>(columns_) * sizeof(bf16));
    }
    y_ += ldy_;
    ++row_;
  }

  const char* next_ = nullptr;
  const char* next_end_ = nullptr;
  std::int64_t lines_per_step_ = 0;
  bf16* y_ = nullptr;
  std::int64_t ldy_ = 0;
  std::int64_t row_ = 0;  // the next to write
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t rows_per_step_ = 0;
  const float* bias_ = nullptr;
  alignas(64) float padded_bias_[kAmxBlock];
  alignas(64) float sums_[kAmxElements];
};

// Steps of an operand that stay in the L1 cache: 40 of 48 KB, because stores would evict more. The
// others are streamed.
constexpr std::int64_t kAmxResidentSteps = 20;
// Bytes of the panels of a group; the rest of the L2 cache holds rows and y.
constexpr std::int64_t kAmxGroupBytes = 800 * 1024;

inline std::size_t amx_forward_scratch(std::int64_t k) {
  return static_cast<std::size_t>(amx_blocks(k) * kAmxElements) * sizeof(bf16);
}

// 32 rows of the left operand at a time meet the panels of a group, which are streamed from the L2
// cache. Nothing is packed but incomplete blocks, and the rows are read once per group.
template <class Tiles>
void amx_forward(const ForwardBlock<bf16>& block) {
  Tiles tiles;
  const std::int64_t steps = amx_blocks(block.k);
  const std::int64_t resident = steps <= kAmxResidentSteps + 4 ? steps : kAmxResidentSteps;
  const std::int64_t row_bytes = block.lda * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t panels = amx_blocks(block.columns);
  const std::int64_t panel_bytes = steps * kAmxElements * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t groups = (panels * panel_bytes + kAmxGroupBytes - 1) / kAmxGroupBytes;
  const std::int64_t group = groups > 1 ? (panels + groups - 1) / groups : panels;
  AmxForwardAhead<Tiles> ahead;
  for (std::int64_t first = 0; first < panels; first += group) {
    const std::int64_t end = smaller(first + group, panels);
    for (std::int64_t row = 0; row < block.rows; row += kAmxBlock) {
      const std::int64_t rows = smaller(kAmxBlock, block.rows - row);
      const bf16* const a = block.a + row * block.lda;
      AmxRows left{a, row_bytes, kAmxBlock};
      if (rows < kAmxBlock || block.k % kAmxBlock != 0) {
        left = amx_pack_rows(a, block.lda, rows, block.k, reinterpret_cast<bf16*>(block.scratch));
      }
      if (row + kAmxBlock < block.rows) {
        ahead.prefetch(a + kAmxBlock * block.lda, kAmxBlock * row_bytes,
                       kAmxBlock / (end - first) + 1);
      }
      for (std::int64_t c = first; c < end; ++c) {
        const std::int64_t column = c * kAmxBlock;
        const bf16* const panel = block.panels + c * block.panel_stride;
        amx_clear(tiles);
        amx_accumulate<false, true>(tiles, left, panel, resident, ahead);
        amx_accumulate<true, true>(tiles, left.from(resident), panel + resident * kAmxElements,
                                   steps - resident, ahead);
        amx_store(tiles, ahead.finish());
        ahead.begin(block.bias != nullptr ? block.bias + column : nullptr,
                    block.y + row * block.ldy + column, block.ldy, rows,
                    smaller(block.columns - column, kAmxBlock), steps);
      }
    }
  }
  ahead.finish();
}

// What amx_weight does ahead: it prefetches the next panel of x into the L2 cache, evenly over the
// steps, and the sum with which a tile will be merged into the L1 cache in the tile's last steps.
template <class Tiles>
struct AmxWeightAhead {
  const char* next = nullptr;
  std::int64_t stride = 0;  // bytes
  std::int64_t left = 0;    // lines
  std::int64_t lines = 0;   // per step
  const float* sum = nullptr;
  std::int64_t sum_lines = 0;
  std::int64_t wait = 0;  // steps

  static constexpr std::int64_t kSumLines = kAmxElements * sizeof(float) / kCacheLine;
  static constexpr std::int64_t kSumLinesPerStep = 8;

  // To be called before the steps of a tile.
  void begin_tile(const float* tile_sum, std::int64_t steps) {
    sum = tile_sum;
    sum_lines = kSumLines;
    wait = steps - kSumLines / kSumLinesPerStep + 1;
  }
  void operator()() {
    for (std::int64_t i = 0; i < lines && left > 0; ++i, --left, next += stride) {
      __builtin_prefetch(next, 0, 2);
    }
    if (--wait > 0) return;
    for (int i = 0; i < kSumLinesPerStep && sum_lines > 0; ++i, --sum_lines) {
      Tiles::prefetch_for_write(sum);
      sum += kCacheLine / sizeof(float);
    }
  }
};

// out = left + right, all [32][32]; out may be left or right.
inline void amx_add(const float* left, const float* right, float* out) {
#pragma GCC ivdep
  for (int i = 0; i < kAmxElements; ++i) out[i] = left[i] + right[i];
}

// Stores the sum of a tile [rows, columns] to dw, or its transpose.
template <class Packing>
void amx_store_gradient(const float* sum, const WeightBlock<bf16>& block, float* dw,
                        std::int64_t rows, std::int64_t columns) {
  if (!block.transposed && columns == kAmxBlock) {
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(dw + r * block.ldw, sum + r * kAmxBlock, kAmxSumRowBytes);
    }
  } else if (!block.transposed) {
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(dw + r * block.ldw, sum + r * kAmxBlock,
                       static_cast<std::size_t>(columns) * sizeof(float));
    }
  } else if (rows == kAmxBlock && columns == kAmxBlock) {
    Packing::transpose_floats(sum, dw, block.ldw);
  } else {
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < rows; ++r) dw[c * block.ldw + r] = sum[r * kAmxBlock + c];
    }
  }
}

// Adds the tokens of one segment to one tile of dw, and merges the sums of shards that it completes.
template <class Tiles, class Packing>
void amx_weight_tile(Tiles& tiles, const WeightBlock<bf16>& block, const Segment& segment,
                     const bf16* a, const bf16* b, float* slots, float* local, float* dw,
                     std::int64_t rows, std::int64_t columns, AmxWeightAhead<Tiles>& ahead) {
  if (segment.fresh) {
    amx_clear(tiles);
  } else {
    amx_load(tiles, slots + segment.level * kAmxElements);
  }
  const AmxRows left = amx_packed_rows(a + segment.first_group * kAmxElements);
  const bf16* const right = b + segment.first_group * kAmxElements;
  const int merges = segment.local_merges + segment.merges;
  float* const slot = (segment.local ? local : slots) + (segment.level - merges) * kAmxElements;
  ahead.begin_tile(slot, segment.groups);
  const std::int64_t resident = smaller(segment.groups, kAmxResidentSteps);
  amx_accumulate<true, false>(tiles, left, right, resident, ahead);
  amx_accumulate<true, true>(tiles, left.from(resident), right + resident * kAmxElements,
                             segment.groups - resident, ahead);
  alignas(64) float shard[kAmxElements];
  float* const sum = merges > 0 ? shard : slot;
  amx_store(tiles, sum);
  for (int m = 1; m <= merges; ++m) {
    const float* const below =
        (m <= segment.local_merges ? local : slots) + (segment.level - m) * kAmxElements;
    amx_add(below, sum, m < merges || segment.last ? sum : slot);
  }
  if (segment.last) amx_store_gradient<Packing>(sum, block, dw, rows, columns);
}

// The part of a panel of x that a segment needs stays in the L1 cache while all rows pass it.
template <class Tiles, class Packing>
void amx_weight(const WeightBlock<bf16>& block) {
  Tiles tiles;
  std::int64_t steps = 0;
  for (std::int64_t s = 0; s < block.segment_count; ++s) steps += block.segments[s].groups;
  steps *= amx_blocks(block.rows);
  AmxWeightAhead<Tiles> ahead;
  ahead.next = reinterpret_cast<const char*>(block.next);
  ahead.stride = block.next_stride * static_cast<std::int64_t>(sizeof(bf16));
  ahead.left = block.next_count;
  ahead.lines = steps > 0 ? block.next_count / steps + 1 : 0;
  for (std::int64_t s = 0; s < block.segment_count; ++s) {
    float* slots = block.slots;
    float* local = block.local;
    const bf16* a = block.a;
    for (std::int64_t r = 0; r < block.rows; r += kAmxBlock, a += block.a_stride) {
      amx_weight_tile<Tiles, Packing>(tiles, block, block.segments[s], a, block.b, slots, local,
                                      block.dw + (block.transposed ? r : r * block.ldw),
                                      smaller(block.rows - r, kAmxBlock), block.columns, ahead);
      slots += block.slot_count * kAmxElements;
      local += block.slot_count * kAmxElements;
    }
  }
}

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
  engine.panels_stay = true;
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
