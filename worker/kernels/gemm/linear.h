// The linear layers over an Engine: cuts the work into blocks and shares them between threads.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "worker/kernels/gemm/engine.h"
#include "worker/kernels/ops.h"

namespace tilewright::kernels {

constexpr std::int64_t round_up_to(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}
constexpr std::int64_t blocks_of(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit;
}

// How a product [rows, columns] is cut into tasks. The rows of a block stay in the L2 cache while
// the panels pass through it.
struct ForwardPlan {
  std::int64_t rows = 0;     // of a block
  std::int64_t columns = 0;  // of a block
};

constexpr std::int64_t kL2Rows = 320 * 1024;  // bytes of left rows that share L2 with the panels

inline ForwardPlan plan_forward(std::int64_t rows, std::int64_t columns, std::int64_t row_bytes,
                                std::int64_t mr, std::int64_t nr, int threads) {
  const std::int64_t fitting = std::max(mr, kL2Rows / std::max<std::int64_t>(row_bytes, 1));
  std::int64_t row_blocks = blocks_of(rows, std::min<std::int64_t>(fitting, 256));
  std::int64_t column_blocks = 1;
  if (threads > 1) {
    // Enough tasks that a thread that starts late or runs slowly leaves the others something to do.
    const std::int64_t wanted = 4 * threads;
    row_blocks = std::clamp(wanted, row_blocks, std::max(row_blocks, blocks_of(rows, 4 * mr)));
    row_blocks =
        std::min(round_up_to(row_blocks, threads), std::max<std::int64_t>(1, blocks_of(rows, mr)));
    column_blocks =
        std::clamp<std::int64_t>(blocks_of(wanted, row_blocks), 1, blocks_of(columns, nr));
  }
  return {round_up_to(blocks_of(rows, row_blocks), mr),
          round_up_to(blocks_of(columns, column_blocks), nr)};
}

// How dw [n, k] is cut into tasks. A task goes over all tokens, a chunk at a time: it packs its
// columns of dy (they stay in the L2 cache), then one panel of x after the other (it stays in L1),
// and adds their product to its block's running sums.
struct WeightPlan {
  std::int64_t tokens = 0;     // of a chunk, padding included
  std::int64_t rows = 0;       // of a block of dw
  std::int64_t columns = 0;    // of a block of dw
  std::int64_t slots = 0;      // running sums: log2(shards) + 1
  std::int64_t dy_stride = 0;  // elements from a packed panel to the next
  // Bytes from the start of a thread's scratch: packed dy, then the others.
  std::size_t x_at = 0;
  std::size_t slots_at = 0;
  std::size_t near_at = 0;
  std::size_t bias_at = 0;
  std::size_t bytes = 0;
};

template <typename T>
WeightPlan plan_weight(const Engine<T>& engine, std::int64_t shards, std::int64_t k, std::int64_t n,
                       int threads) {
  // Packed dy within 1 MiB of L2, a panel of x within L1; x is packed once for each block of rows.
  constexpr std::int64_t kRows = sizeof(T) == 2 ? 768 : 384;
  constexpr std::int64_t kColumns = 768;
  WeightPlan plan;
  plan.tokens = sizeof(T) == 2 ? 592 : 256;
  std::int64_t row_blocks = blocks_of(n, kRows);
  std::int64_t column_blocks = blocks_of(k, kColumns);
  // As many tasks for each thread, where blocks do not become too small to be worth their packing.
  while (row_blocks * column_blocks % threads != 0 &&
         (n / row_blocks >= 8 * engine.mr || k / column_blocks >= 8 * engine.nr)) {
    ++(n / row_blocks >= k / column_blocks ? row_blocks : column_blocks);
  }
  plan.rows = round_up_to(blocks_of(n, row_blocks), engine.mr);
  plan.columns = round_up_to(blocks_of(k, column_blocks), engine.nr);
  plan.slots = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(shards, 1)));
  plan.dy_stride = plan.tokens * engine.mr + kPanelGap;
  std::size_t at = 0;
  const auto take = [&](std::int64_t elements, std::size_t size) {
    const std::size_t begin = at;
    at += (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
    return begin;
  };
  take(plan.rows / engine.mr * plan.dy_stride, sizeof(T));
  plan.x_at = take(plan.tokens * engine.nr + kPanelGap, sizeof(T));
  plan.slots_at = take(plan.rows * plan.columns * plan.slots, sizeof(float));
  plan.near_at = take(plan.slots * engine.mr * engine.nr, sizeof(float));
  plan.bias_at = take(plan.rows * plan.slots, sizeof(float));
  plan.bytes = at;
  return plan;
}

// The token rows of one chunk, cut at the shards' borders.
struct Chunk {
  static constexpr int kMost = 64;
  std::array<Segment, kMost> segments;
  std::array<std::int64_t, kMost> first_row;
  std::array<std::int64_t, kMost> row_count;
  int count = 0;

  std::int64_t first_token(int segment, std::int64_t granularity) const {
    return segments[segment].first_group * granularity;
  }
  std::int64_t rows() const { return first_row[count - 1] + row_count[count - 1] - first_row[0]; }
};

// Walks the shards chunk by chunk. A chunk is the largest subtree of whole shards that begins here
// and fits, so that only its sum leaves it; a shard that does not fit is cut into equal parts.
class ChunkReader {
 public:
  ChunkReader(Shards shards, std::int64_t tokens, std::int64_t granularity)
      : shards_(shards), capacity_(tokens / granularity), granularity_(granularity) {
    row_ = shards.front();
  }

  // False when all shards are done.
  bool next(Chunk& chunk) {
    chunk.count = 0;
    if (shard_ == shard_count()) return false;
    const std::int64_t left = blocks_of(shards_[shard_ + 1] - row_, granularity_);
    if (!fresh_ || left > capacity_) {
      add(chunk, blocks_of(left, blocks_of(left, capacity_)), 0, false);
      return true;
    }
    const int height = subtree();
    for (int i = 1 << height; i > 0; --i) add(chunk, groups_of(shard_), height, i > 1);
    return true;
  }

 private:
  std::size_t shard_count() const { return shards_.size() - 1; }
  std::int64_t groups_of(std::size_t shard) const {
    return blocks_of(shards_[shard + 1] - shards_[shard], granularity_);
  }

  // The height of the largest subtree that begins with this shard and fits.
  int subtree() const {
    std::int64_t groups = groups_of(shard_);
    int height = 0;
    for (std::size_t size = 1; 2 * size <= Chunk::kMost; size *= 2, ++height) {
      if (shard_ % (2 * size) != 0 || shard_ + 2 * size > shard_count()) break;
      for (std::size_t s = shard_ + size; s < shard_ + 2 * size; ++s) groups += groups_of(s);
      if (groups > capacity_) break;
    }
    return height;
  }

  // The next `groups` groups of this shard, in a chunk that is a subtree of `height`.
  void add(Chunk& chunk, std::int64_t groups, int height, bool near) {
    const std::int64_t rows = std::min(shards_[shard_ + 1] - row_, groups * granularity_);
    const int i = chunk.count++;
    chunk.first_row[i] = row_;
    chunk.row_count[i] = rows;
    Segment& segment = chunk.segments[i];
    segment.first_group =
        i == 0 ? 0 : chunk.segments[i - 1].first_group + chunk.segments[i - 1].groups;
    segment.groups = groups;
    segment.level = std::popcount(shard_);
    segment.fresh = fresh_;
    segment.near = near;
    row_ += rows;
    fresh_ = row_ == shards_[shard_ + 1];
    const int merges = fresh_ ? std::countr_one(shard_) : 0;
    segment.near_merges = std::min(merges, height);
    segment.merges = merges - segment.near_merges;
    segment.last = fresh_ && shard_ + 1 == shard_count();
    if (fresh_) ++shard_;
  }

  Shards shards_;
  std::int64_t capacity_;
  std::int64_t granularity_;
  std::int64_t row_ = 0;
  std::size_t shard_ = 0;
  bool fresh_ = true;
};

template <typename T, const Engine<T>& kEngine>
struct Linear {
  static std::size_t packed_weight_size(std::int64_t n, std::int64_t k) {
    const std::int64_t forward = round_up_to(n, kEngine.nr) * round_up_to(k, kEngine.granularity);
    const std::int64_t backward = round_up_to(k, kEngine.nr) * round_up_to(n, kEngine.granularity);
    return static_cast<std::size_t>(std::max(forward, backward));
  }

  static void pack_weight(const float* w, std::int64_t n, std::int64_t k, std::int64_t row_begin,
                          std::int64_t row_end, T* forward, T* backward) {
    kEngine.pack_weight(w, n, k, row_begin, row_end, forward, backward);
  }

  static void forward(ThreadPool& pool, const T* x, const T* packed, const float* bias,
                      std::int64_t rows, std::int64_t k, std::int64_t n, T* y) {
    if (rows <= 0) return;
    const ForwardPlan plan = plan_forward(rows, n, k * static_cast<std::int64_t>(sizeof(T)),
                                          kEngine.mr, kEngine.nr, pool.size());
    const std::int64_t column_blocks = blocks_of(n, plan.columns);
    const std::int64_t panel_stride = round_up_to(k, kEngine.granularity) * kEngine.nr;
    pool.run(blocks_of(rows, plan.rows) * column_blocks, [&](std::int64_t task, int) {
      const std::int64_t row = task / column_blocks * plan.rows;
      const std::int64_t column = task % column_blocks * plan.columns;
      ForwardBlock<T> block;
      block.a = x + row * k;
      block.lda = k;
      block.panels = packed + column / kEngine.nr * panel_stride;
      block.panel_stride = panel_stride;
      block.bias = bias != nullptr ? bias + column : nullptr;
      block.y = y + row * n + column;
      block.ldy = n;
      block.rows = std::min(plan.rows, rows - row);
      block.columns = std::min(plan.columns, n - column);
      block.k = k;
      kEngine.forward(block);
    });
  }

  static void backward_input(ThreadPool& pool, const T* dy, const T* packed, std::int64_t rows,
                             std::int64_t k, std::int64_t n, T* dx) {
    forward(pool, dy, packed, nullptr, rows, n, k, dx);
  }

  static std::size_t backward_weight_scratch(std::int64_t /*rows*/, std::int64_t shards,
                                             std::int64_t k, std::int64_t n, int threads) {
    return plan_weight(kEngine, shards, k, n, threads).bytes * static_cast<std::size_t>(threads);
  }

  static void backward_weight(ThreadPool& pool, const T* x, const T* dy, Shards shards,
                              std::int64_t k, std::int64_t n, float* dw, float* dbias,
                              std::byte* scratch) {
    const auto shard_count = static_cast<std::int64_t>(shards.size()) - 1;
    const WeightPlan plan = plan_weight(kEngine, shard_count, k, n, pool.size());
    const std::int64_t column_blocks = blocks_of(k, plan.columns);
    pool.run(blocks_of(n, plan.rows) * column_blocks, [&](std::int64_t task, int thread) {
      const std::int64_t row = task / column_blocks * plan.rows;
      const std::int64_t column = task % column_blocks * plan.columns;
      std::byte* own = scratch + static_cast<std::size_t>(thread) * plan.bytes;
      T* packed_dy = reinterpret_cast<T*>(own);
      T* packed_x = reinterpret_cast<T*>(own + plan.x_at);
      float* bias_slots = reinterpret_cast<float*>(own + plan.bias_at);
      WeightBlock<T> block;
      block.a = packed_dy;
      block.b = packed_x;
      block.a_stride = plan.dy_stride;
      block.slot_count = plan.slots;
      block.near = reinterpret_cast<float*>(own + plan.near_at);
      block.ldw = k;
      block.rows = std::min(plan.rows, n - row);
      const std::int64_t column_end = std::min(column + plan.columns, k);
      ChunkReader reader(shards, plan.tokens, kEngine.granularity);
      for (Chunk chunk; reader.next(chunk);) {
        block.segments = chunk.segments.data();
        block.segment_count = chunk.count;
        for (int s = 0; s < chunk.count; ++s) {
          const T* from = dy + chunk.first_row[s] * n + row;
          kEngine.pack_dy(from, n, chunk.row_count[s], block.rows,
                          packed_dy + chunk.first_token(s, kEngine.granularity) * kEngine.mr,
                          plan.dy_stride);
          if (dbias != nullptr && column == 0) {
            sum_bias(chunk.segments[s], from, n, chunk.row_count[s], block.rows, bias_slots,
                     plan.rows, dbias + row);
          }
        }
        block.slots = reinterpret_cast<float*>(own + plan.slots_at);
        for (std::int64_t c = column; c < column_end; c += kEngine.nr) {
          block.columns = std::min<std::int64_t>(kEngine.nr, column_end - c);
          block.dw = dw + row * k + c;
          block.next = x + chunk.first_row[0] * k + c + kEngine.nr;
          block.next_stride = k;
          block.next_count = c + kEngine.nr < column_end ? chunk.rows() : 0;
          for (int s = 0; s < chunk.count; ++s) {
            kEngine.pack_x(x + chunk.first_row[s] * k + c, k, chunk.row_count[s], block.columns,
                           packed_x + chunk.first_token(s, kEngine.granularity) * kEngine.nr, 0);
          }
          kEngine.weight(block);
          block.slots += plan.rows * kEngine.nr * plan.slots;
        }
      }
    });
  }

  static void fill(Ops<T>& ops) {
    ops.packed_weight_size = {packed_weight_size, kEngine.name};
    ops.pack_weight = {pack_weight, kEngine.name};
    ops.linear_forward = {forward, kEngine.name};
    ops.linear_backward_input = {backward_input, kEngine.name};
    ops.linear_backward_weight = {backward_weight, kEngine.name};
    ops.linear_backward_weight_scratch = {backward_weight_scratch, kEngine.name};
  }

 private:
  // The tree of Segment for one row of sums.
  static void sum_bias(const Segment& segment, const T* dy, std::int64_t ld, std::int64_t tokens,
                       std::int64_t columns, float* slots, std::int64_t stride, float* dbias) {
    float* sums = slots + segment.level * stride;
    if (segment.fresh) std::fill_n(sums, columns, 0.0f);
    kEngine.add_rows(dy, ld, tokens, columns, sums);
    for (int m = 0; m < segment.near_merges + segment.merges; ++m) {
      const float* right = sums;
      sums -= stride;
      for (std::int64_t c = 0; c < columns; ++c) sums[c] += right[c];
    }
    if (segment.last) std::copy_n(sums, columns, dbias);
  }
};

}  // namespace tilewright::kernels
