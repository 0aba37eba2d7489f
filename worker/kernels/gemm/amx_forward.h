// Forward and dX of a linear layer on AMX tiles.
#pragma once

#include "worker/kernels/gemm/amx_steps.h"
#include "worker/kernels/gemm/engine.h"

namespace tilewright::kernels {
namespace {

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
    rows_per_step_ = ceil_div(kAmxBlock, steps);
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

// Bytes of the panels of a group; the rest of the L2 cache holds rows and y.
constexpr std::int64_t kAmxGroupBytes = 800 * 1024;

inline std::size_t amx_forward_scratch(std::int64_t k) {
  return static_cast<std::size_t>(amx_blocks(k) * kAmxElements) * sizeof(bf16);
}

// Multiplies 32 rows of the left operand at a time by the panels of a group, which are streamed
// from the L2 cache. Only incomplete blocks are packed, and the rows are read once per group.
template <class Tiles>
void amx_forward(const ForwardBlock<bf16>& block) {
  Tiles tiles;
  const std::int64_t steps = amx_blocks(block.k);
  const std::int64_t resident = steps <= kAmxResidentSteps + 4 ? steps : kAmxResidentSteps;
  const std::int64_t row_bytes = block.lda * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t panels = amx_blocks(block.columns);
  const std::int64_t panel_bytes = steps * kAmxElements * static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t groups = ceil_div(panels * panel_bytes, kAmxGroupBytes);
  const std::int64_t group = groups > 1 ? ceil_div(panels, groups) : panels;
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

}  // namespace
}  // namespace tilewright::kernels
