// Register tiles for vector instruction sets. Included by the files of one instruction set and
// compiled with their flags, so everything is in an unnamed namespace.
//
// A tile is MR rows by kVectors vectors of accumulators that stay in registers over the whole
// summed dimension, or over kMostTerms of it: one accumulator per element, k ascending, for any
// number of rows. The policy P of an instruction set defines how a group of summed elements is
// multiplied:
//   Element                the type of the operands
//   kGroup, kPhases        summed elements per group; multiplications per group
//   kMostTerms             groups per sum of forward, 0: all; the rounding error of one sum of n
//                          terms grows as the root of n, that of sums of b terms as the root of
//                          b + n/b (N. J. Higham, The accuracy of floating point summation, 1993)
//   kRows, kVectors        largest MR; vectors per row
//   Vec, kLanes            kLanes floats
//   Left, Right            loaded operands
//   zero, load, add, store, store_float, load_part, store_part (the first `count` lanes)
//   load_a<phase>(p)       one group of a row, broadcast to all lanes
//   load_a_last<phase>(p)  the same if only the first element of the group exists
//   load_b<phase>(p)       one group of kLanes columns
//   multiply_add(acc, a, b)
//   Packing                see packing.h
#pragma once

#include "worker/kernels/gemm/packing.h"
#include "worker/kernels/gemm/peak_operands.h"

namespace tilewright::kernels {
namespace {

// Addresses of the left operand: rows of a row-major matrix, or a packed panel.
template <class P>
struct MatrixRows {
  std::int64_t stride;
  std::int64_t at(int row) const { return row * stride; }
  static constexpr std::int64_t kStep = P::kGroup;
};
template <class P>
struct PanelRows {
  std::int64_t at(int row) const { return row * P::kGroup; }
  static constexpr std::int64_t kStep = P::kRows * P::kGroup;
};

template <class P, int MR>
struct Tile {
  typename P::Vec acc[MR][P::kVectors];

  void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) acc[r][v] = P::zero();
    }
  }

  __attribute__((always_inline)) void load(const float* slot) {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) {
        acc[r][v] = P::load(slot + (r * P::kVectors + v) * P::kLanes);
      }
    }
  }

  __attribute__((always_inline)) void add_left(const float* slot) {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) {
        acc[r][v] = P::add(P::load(slot + (r * P::kVectors + v) * P::kLanes), acc[r][v]);
      }
    }
  }

  __attribute__((always_inline)) void store(float* out, std::int64_t stride) const {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) {
        P::store_float(out + r * stride + v * P::kLanes, acc[r][v]);
      }
    }
  }

  template <int kPhase, bool kLast, class Rows>
  __attribute__((always_inline)) void phase(const typename P::Element* a, Rows rows,
                                            const typename P::Element* b) {
    typename P::Right right[P::kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < P::kVectors; ++v) {
      right[v] = P::template load_b<kPhase>(b + v * P::kLanes * P::kGroup);
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      typename P::Left left;
      if constexpr (kLast) {
        left = P::template load_a_last<kPhase>(a + rows.at(r));
      } else {
        left = P::template load_a<kPhase>(a + rows.at(r));
      }
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) {
        acc[r][v] = P::multiply_add(acc[r][v], left, right[v]);
      }
    }
  }

  template <bool kLast, class Rows>
  __attribute__((always_inline)) void group(const typename P::Element* a, Rows rows,
                                            const typename P::Element* b) {
    phase<0, kLast>(a, rows, b);
    if constexpr (P::kPhases == 2) {
      // Both phases read the same pairs. The barrier makes the compiler load them twice: keeping
      // them in registers would spill accumulators.
      asm volatile("" : : : "memory");
      phase<1, kLast>(a, rows, b);
    }
  }

  template <class Rows>
  __attribute__((always_inline)) void accumulate(const typename P::Element* a, Rows rows,
                                                 const typename P::Element* b,
                                                 std::int64_t groups) {
    for (std::int64_t g = 0; g < groups; ++g) {
      group<false>(a, rows, b);
      a += Rows::kStep;
      b += P::kVectors * P::kLanes * P::kGroup;
    }
  }
};

// Prefetches data that will be written.
template <int kBytes>
inline void prefetch(const void* p) {
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(static_cast<const char*>(p) + i, 1);
}

template <class P, int MR>
void forward_tile(const ForwardBlock<typename P::Element>& block, const typename P::Element* a,
                  const typename P::Element* panel, const float* bias, typename P::Element* y,
                  std::int64_t columns) {
  // The rows of y are seldom in the cache. Without a prefetch their stores follow one another from
  // memory, for short K longer than a tile takes.
  constexpr int kRowBytes = P::kVectors * P::kLanes * sizeof(typename P::Element);
  for (int r = 0; r < MR; ++r) prefetch<kRowBytes>(y + r * block.ldy);
  Tile<P, MR> tile;
  tile.clear();
  const MatrixRows<P> rows{block.lda};
  std::int64_t groups = block.k / P::kGroup;
  if constexpr (P::kMostTerms > 0) {
    constexpr int kRow = P::kVectors * P::kLanes;
    alignas(64) float sums[MR * kRow];
    tile.accumulate(a, rows, panel, groups < P::kMostTerms ? groups : P::kMostTerms);
    while ((groups -= P::kMostTerms) > 0) {
      a += P::kMostTerms * MatrixRows<P>::kStep;
      panel += P::kMostTerms * kRow;
      tile.store(sums, kRow);
      tile.clear();
      tile.accumulate(a, rows, panel, groups < P::kMostTerms ? groups : P::kMostTerms);
      tile.add_left(sums);
    }
  } else {
    tile.accumulate(a, rows, panel, groups);
  }
  if (P::kGroup == 2 && block.k % 2 != 0) {
    tile.template group<true>(a + groups * P::kGroup, rows,
                              panel + groups * P::kVectors * P::kLanes * P::kGroup);
  }
#pragma GCC unroll 8
  for (int v = 0; v < P::kVectors; ++v) {
    const std::int64_t left = columns - v * P::kLanes;
    if (left <= 0) break;
    const bool whole = left >= P::kLanes;
    typename P::Vec add = P::zero();
    if (bias != nullptr) {
      add = whole ? P::load(bias + v * P::kLanes)
                  : P::load_part(bias + v * P::kLanes, static_cast<int>(left));
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const typename P::Vec sum = P::add(tile.acc[r][v], add);
      typename P::Element* out = y + r * block.ldy + v * P::kLanes;
      if (whole) {
        P::store(out, sum);
      } else {
        P::store_part(out, sum, static_cast<int>(left));
      }
    }
  }
}

// The tile with exactly `rows` rows.
template <class P, int MR>
void forward_rows(int rows, const ForwardBlock<typename P::Element>& block,
                  const typename P::Element* a, const typename P::Element* panel, const float* bias,
                  typename P::Element* y, std::int64_t columns) {
  if (rows == MR) {
    forward_tile<P, MR>(block, a, panel, bias, y, columns);
  } else if constexpr (MR > 1) {
    forward_rows<P, MR - 1>(rows, block, a, panel, bias, y, columns);
  }
}

// Number of rows per tile. Rows at a distance of a multiple of 4 KiB (K = 4096) share one set of
// the L1 cache, which has 8 or 12 ways; half as many rows are then faster, because they do not
// evict each other. The bits of the result do not depend on the number of rows.
template <class P>
std::int64_t forward_tile_rows(std::int64_t row_bytes) {
  constexpr int kWays = 8;
  return P::kRows > kWays && row_bytes % 4096 == 0 ? P::kRows / 2 : P::kRows;
}

template <class P>
void forward_block(const ForwardBlock<typename P::Element>& block) {
  constexpr int kColumns = P::kVectors * P::kLanes;
  const std::int64_t most =
      forward_tile_rows<P>(block.lda * static_cast<std::int64_t>(sizeof(typename P::Element)));
  const typename P::Element* panel = block.panels;
  for (std::int64_t c = 0; c < block.columns; c += kColumns, panel += block.panel_stride) {
    const std::int64_t columns = block.columns - c < kColumns ? block.columns - c : kColumns;
    for (std::int64_t r = 0; r < block.rows; r += most) {
      const std::int64_t rows = block.rows - r < most ? block.rows - r : most;
      forward_rows<P, P::kRows>(static_cast<int>(rows), block, block.a + r * block.lda, panel,
                                block.bias != nullptr ? block.bias + c : nullptr,
                                block.y + r * block.ldy + c, columns);
    }
  }
}

// Prefetches `next_lines` of `next` per segment.
template <class P, int MR>
void weight_tile(const WeightBlock<typename P::Element>& block, const typename P::Element* a,
                 const typename P::Element* b, float* slots, float* dw, std::int64_t columns,
                 NextLines<typename P::Element>& next, std::int64_t next_lines) {
  constexpr int kColumns = P::kVectors * P::kLanes;
  constexpr int kSlot = P::kRows * kColumns;
  constexpr int kRowLines = kColumns * sizeof(float) / kCacheLine;
  constexpr int kLines = MR * kRowLines;
  constexpr std::int64_t kLine = kCacheLine / sizeof(float);
  for (std::int64_t s = 0; s < block.segment_count; ++s) {
    const Segment& segment = block.segments[s];
    Tile<P, MR> tile;
    if (segment.fresh) {
      tile.clear();
    } else {
      tile.load(slots + segment.level * kSlot);
    }
    const bool direct = segment.last && columns == kColumns;
    float* slot = slots + (segment.level - segment.local_merges) * kSlot;
    // The segment is added in slices, one per line of the tile, and each first prefetches what is
    // read or written after the segment: lines of the sums that are merged or of the place that is
    // written, of the sum that the next tile continues, and of what is read after the block.
    const int sums = segment.local ? 0 : segment.merges > 0 ? segment.merges : 1;
    const float* const lowest = slot - segment.merges * kSlot;
    const bool continues = s == 0 && !segment.fresh;
    const std::int64_t slice = segment.groups / kLines;
    const typename P::Element* left = a + segment.first_group * PanelRows<P>::kStep;
    const typename P::Element* right = b + segment.first_group * kColumns * P::kGroup;
    for (std::int64_t i = 0; i < kLines; ++i) {
      for (int m = 0; m < sums; ++m) __builtin_prefetch(lowest + m * kSlot + i * kLine, 1);
      if (direct) __builtin_prefetch(dw + i / kRowLines * block.ldw + i % kRowLines * kLine, 1);
      if (continues) __builtin_prefetch(slot + block.slot_count * kSlot + i * kLine, 1);
      next.prefetch(ceil_div(next_lines, kLines));
      tile.accumulate(left, PanelRows<P>{}, right, slice);
      left += slice * PanelRows<P>::kStep;
      right += slice * kColumns * P::kGroup;
    }
    tile.accumulate(left, PanelRows<P>{}, right, segment.groups - kLines * slice);
    for (int m = 1; m <= segment.local_merges; ++m) {
      tile.add_left(block.local + (segment.level - m) * kSlot);
    }
    for (int m = 1; m <= segment.merges; ++m) tile.add_left(slot - m * kSlot);
    if (direct) {
      tile.store(dw, block.ldw);
      continue;
    }
    slot -= segment.merges * kSlot;
    if (segment.local) slot += block.local - slots;
    tile.store(slot, kColumns);
    if (segment.last) {
      for (std::int64_t r = 0; r < MR; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) dw[r * block.ldw + c] = slot[r * kColumns + c];
      }
    }
  }
}

// The tile with exactly `rows` rows.
template <class P, int MR>
void weight_rows(int rows, const WeightBlock<typename P::Element>& block,
                 const typename P::Element* a, const typename P::Element* b, float* slots,
                 float* dw, std::int64_t columns, NextLines<typename P::Element>& next,
                 std::int64_t next_lines) {
  if (rows == MR) {
    weight_tile<P, MR>(block, a, b, slots, dw, columns, next, next_lines);
  } else if constexpr (MR > 1) {
    weight_rows<P, MR - 1>(rows, block, a, b, slots, dw, columns, next, next_lines);
  }
}

template <class P>
void weight_block(const WeightBlock<typename P::Element>& block) {
  constexpr int kColumns = P::kVectors * P::kLanes;
  float* slots = block.slots;
  const typename P::Element* b = block.b;
  const std::int64_t tiles = ceil_div(block.rows, P::kRows) * ceil_div(block.columns, kColumns);
  NextLines<typename P::Element> next(block.next);
  const std::int64_t next_lines = ceil_div(next.left(), tiles * block.segment_count);
  for (std::int64_t c = 0; c < block.columns; c += kColumns, b += block.b_stride) {
    const std::int64_t columns = block.columns - c < kColumns ? block.columns - c : kColumns;
    const typename P::Element* a = block.a;
    for (std::int64_t r = 0; r < block.rows; r += P::kRows, a += block.a_stride) {
      const std::int64_t rows = block.rows - r < P::kRows ? block.rows - r : P::kRows;
      weight_rows<P, P::kRows>(static_cast<int>(rows), block, a, b, slots,
                               block.dw + r * block.ldw + c, columns, next, next_lines);
      slots += block.slot_count * P::kRows * kColumns;
    }
  }
}

template <class P>
double peak(std::int64_t rounds) {
  constexpr int kTile = P::kRows * P::kVectors * P::kLanes;
  constexpr int kOperand = 4 * P::kGroup * P::kLanes;
  typename P::Element operand[kOperand];
  float sums[kTile];
  fill_peak_operands(operand, kOperand, 1);
  fill_peak_operands(sums, kTile, 2);
  // Hides the values from the compiler.
  asm volatile("" : : "r"(operand), "r"(sums) : "memory");
  const typename P::Left left = P::template load_a<0>(operand);
  const typename P::Right right = P::template load_b<0>(operand);
  Tile<P, P::kRows> tile;
  tile.load(sums);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int r = 0; r < P::kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < P::kVectors; ++v) {
        tile.acc[r][v] = P::multiply_add(tile.acc[r][v], left, right);
      }
    }
  }
  tile.store(sums, P::kVectors * P::kLanes);
  asm volatile("" : : "r"(sums) : "memory");
  constexpr double kOperations = 2.0 * P::kRows * P::kVectors * P::kLanes * P::kGroup / P::kPhases;
  return static_cast<double>(rounds) * kOperations;
}

template <class P>
constexpr Engine<typename P::Element> make_engine(const char* name) {
  using Element = typename P::Element;
  constexpr int kColumns = P::kVectors * P::kLanes;
  Engine<Element> engine;
  engine.name = name;
  engine.mr = P::kRows;
  engine.nr = kColumns;
  engine.granularity = P::kGroup;
  engine.forward = forward_block<P>;
  engine.weight = weight_block<P>;
  engine.pack_dy = pack_tokens<typename P::Packing, P::kRows, P::kGroup, Element>;
  engine.pack_x = pack_tokens<typename P::Packing, kColumns, P::kGroup, Element>;
  engine.add_rows = add_rows<Element>;
  engine.peak = peak<P>;
  engine.pack_weight =
      pack_weight_panels<typename P::Packing, kColumns, P::kGroup, P::kGroup, Element>;
  return engine;
}

}  // namespace
}  // namespace tilewright::kernels
