// dW of a linear layer on AMX tiles.
#pragma once

#include "worker/kernels/gemm/amx_steps.h"
#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels {
namespace {

// What amx_weight does during the steps of a tile: it prefetches the next panel of x into the L2
// cache, and merges the sum of the previous tile, a few rows per step, so that its stores do not
// hold up the tile loads.
template <class Packing>
class AmxWeightAhead {
 public:
  // `steps`: of the block
  AmxWeightAhead(const WeightBlock<bf16>& block, std::int64_t steps)
      : block_(block),
        next_(block.next),
        lines_per_step_(steps > 0 ? next_.left() / steps + 1 : 0) {}

  // Whether sums of this panel of dy are still to be read or written.
  bool merges(std::int64_t panel) const { return half_row_ < kHalfRows && panel == panel_; }
  // Merges the rest of the previous tile. Returns where to store the next one.
  float* finish() {
    while (half_row_ < kHalfRows) merge_half_row();
    return sum_;
  }
  // The stored sum of a tile [rows, columns] is merged with the sums of add_below(), the nearest
  // first: below[1] + (below[0] + sum). The result goes to `slot`, or to dw if it is not null,
  // within `steps`.
  void begin(std::int64_t panel, float* slot, float* dw, std::int64_t rows, std::int64_t columns,
             std::int64_t steps) {
    panel_ = panel;
    slot_ = slot;
    dw_ = dw;
    rows_ = rows;
    columns_ = columns;
    half_rows_per_step_ = steps > 0 ? ceil_div(kHalfRows, steps) : kHalfRows;  // 0: no tokens
    half_row_ = 0;
    below_count_ = 0;
  }
  void add_below(const float* sum) { below_[below_count_++] = sum; }

  void operator()() {
    next_.prefetch(lines_per_step_);
    for (std::int64_t i = 0; i < half_rows_per_step_ && half_row_ < kHalfRows; ++i) {
      merge_half_row();
    }
  }

 private:
  using HalfRow [[gnu::vector_size(kAmxTileRows * sizeof(float))]] = float;
  static constexpr std::int64_t kHalfRows = 2 * kAmxBlock;
  static constexpr int kMaxBelow = 32;  // at most one per bit of the number of shards

  void merge_half_row() {
    const std::int64_t offset = half_row_ * kAmxTileRows;
    HalfRow sum;
    __builtin_memcpy(&sum, sum_ + offset, sizeof sum);
    for (int m = 0; m < below_count_; ++m) {
      HalfRow below;
      __builtin_memcpy(&below, below_[m] + offset, sizeof below);
      sum = below + sum;
    }
    if (dw_ == nullptr) {
      __builtin_memcpy(slot_ + offset, &sum, sizeof sum);
    } else if (block_.transposed) {
      __builtin_memcpy(sum_ + offset, &sum, sizeof sum);
      if (half_row_ == kHalfRows - 1) store_transposed();
    } else {
      store_gradient(sum);
    }
    ++half_row_;
  }
  // Inlined, or the sum would pass through memory.
  [[gnu::always_inline]] void store_gradient(const HalfRow& sum) {
    const std::int64_t row = half_row_ / 2;
    const std::int64_t column = half_row_ % 2 * kAmxTileRows;
    if (row >= rows_ || column >= columns_) return;
    float* const out = dw_ + row * block_.ldw + column;
    if (columns_ - column >= kAmxTileRows) {
      __builtin_memcpy(out, &sum, sizeof sum);
    } else {
      __builtin_memcpy(out, &sum, static_cast<std::size_t>(columns_ - column) * sizeof(float));
    }
  }
  void store_transposed() {
    if (rows_ == kAmxBlock && columns_ == kAmxBlock) {
      Packing::transpose_floats(sum_, dw_, block_.ldw);
      return;
    }
    for (std::int64_t c = 0; c < columns_; ++c) {
      for (std::int64_t r = 0; r < rows_; ++r) dw_[c * block_.ldw + r] = sum_[r * kAmxBlock + c];
    }
  }

  const WeightBlock<bf16>& block_;
  NextLines<bf16> next_;
  std::int64_t lines_per_step_;
  std::int64_t panel_ = 0;
  float* slot_ = nullptr;
  float* dw_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t half_rows_per_step_ = 0;
  std::int64_t half_row_ = kHalfRows;  // the next to merge
  int below_count_ = 0;
  const float* below_[kMaxBelow];
  alignas(64) float sum_[kAmxElements];
};

// Adds the tokens of one segment to one tile of dw, the rows of `panel` of dy, and merges the sums
// of shards that it completes.
template <class Tiles, class Packing>
void amx_weight_tile(Tiles& tiles, const WeightBlock<bf16>& block, const Segment& segment,
                     std::int64_t panel, AmxWeightAhead<Packing>& ahead) {
  const auto sum_at = [&](float* sums, int level) {
    return sums + (panel * block.slot_count + level) * kAmxElements;
  };
  if (ahead.merges(panel)) ahead.finish();
  if (segment.fresh) {
    amx_clear(tiles);
  } else {
    amx_load(tiles, sum_at(block.slots, segment.level));
  }
  const AmxRows left =
      amx_packed_rows(block.a + panel * block.a_stride + segment.first_group * kAmxElements);
  const bf16* const right = block.b + segment.first_group * kAmxElements;
  const std::int64_t resident = smaller(segment.groups, kAmxResidentSteps);
  amx_accumulate<true, false>(tiles, left, right, resident, ahead);
  amx_accumulate<true, true>(tiles, left.from(resident), right + resident * kAmxElements,
                             segment.groups - resident, ahead);
  const int merges = segment.local_merges + segment.merges;
  float* const slot = sum_at(segment.local ? block.local : block.slots, segment.level - merges);
  if (merges == 0 && !segment.last) {
    amx_store(tiles, slot);
    return;
  }
  amx_store(tiles, ahead.finish());
  const std::int64_t row = panel * kAmxBlock;
  float* const dw = block.dw + (block.transposed ? row : row * block.ldw);
  ahead.begin(panel, slot, segment.last ? dw : nullptr, smaller(block.rows - row, kAmxBlock),
              block.columns, segment.groups);
  for (int m = 1; m <= merges; ++m) {
    ahead.add_below(
        sum_at(m <= segment.local_merges ? block.local : block.slots, segment.level - m));
  }
}

// The part of a panel of x that a segment needs stays in the L1 cache while all rows pass it.
template <class Tiles, class Packing>
void amx_weight(const WeightBlock<bf16>& block) {
  Tiles tiles;
  const std::int64_t panels = amx_blocks(block.rows);
  std::int64_t steps = 0;
  for (std::int64_t s = 0; s < block.segment_count; ++s) steps += block.segments[s].groups * panels;
  AmxWeightAhead<Packing> ahead(block, steps);
  for (std::int64_t s = 0; s < block.segment_count; ++s) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      amx_weight_tile<Tiles, Packing>(tiles, block, block.segments[s], panel, ahead);
    }
  }
  ahead.finish();
}

}  // namespace
}  // namespace tilewright::kernels
