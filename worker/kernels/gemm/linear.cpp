#include "worker/kernels/gemm/linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "worker/kernels/gemm/plan.h"
#include "worker/kernels/integers.h"

namespace tilewright::kernels {
namespace {

// Tokens of dy that are packed and then summed for the bias gradient while they are in the cache; a
// multiple of every granularity.
constexpr std::int64_t kPackedTokens = 64;
constexpr std::int64_t kL2Rows = 320 * 1024;  // bytes of left rows; the rest of L2 is for panels

// How a product [rows, columns] with the summed dimension k is cut.
template <typename Activation>
BlockSize plan_forward(const Engine<Activation>& engine, std::int64_t rows, std::int64_t columns,
                       std::int64_t k, int threads) {
  // A row of tiles and a panel come from the L3 cache once per block.
  const TiledMatrix matrix{rows, columns, engine.mr, engine.nr, 0.5, 1.0};
  if (engine.panels_stay_in_l2) {
    return fastest_blocks(matrix, {round_up(rows, engine.mr), round_up(columns, engine.nr)},
                          threads);
  }
  const std::int64_t row_bytes = k * static_cast<std::int64_t>(sizeof(Activation));
  const std::int64_t fitting =
      std::max<std::int64_t>(engine.mr, kL2Rows / std::max<std::int64_t>(row_bytes, 1));
  std::int64_t row_blocks = ceil_div(rows, std::min<std::int64_t>(fitting, 256));
  std::int64_t column_blocks = 1;
  if (threads > 1) {
    // Four tasks per thread, so that other threads can take over tasks of a delayed thread.
    const std::int64_t wanted = 4 * threads;
    row_blocks =
        std::clamp(wanted, row_blocks, std::max(row_blocks, ceil_div(rows, 4 * engine.mr)));
    row_blocks = std::min(round_up(row_blocks, threads),
                          std::max<std::int64_t>(1, ceil_div(rows, engine.mr)));
    column_blocks =
        std::clamp<std::int64_t>(ceil_div(wanted, row_blocks), 1, ceil_div(columns, engine.nr));
  }
  return keep_threads_busy(matrix,
                           {round_up(ceil_div(rows, row_blocks), engine.mr),
                            round_up(ceil_div(columns, column_blocks), engine.nr)},
                           threads);
}

// How dw [n, k] is cut into tasks. A task processes all tokens in chunks: it packs its columns of
// dy (which stay in the L2 cache), then each panel of x in turn (which stays in L1), and adds their
// products to the running sums of its block.
struct WeightPlan {
  std::int64_t tokens = 0;     // of a chunk, including padding
  std::int64_t rows = 0;       // of a block of dw
  std::int64_t columns = 0;    // of a block of dw
  std::int64_t slots = 0;      // running sums: log2(shards) + 1
  std::int64_t dy_stride = 0;  // elements between packed panels
  std::int64_t x_stride = 0;   // elements between packed panels of x
  std::size_t packed_x = 0;    // bytes of x that is packed once; they precede the threads' scratch
  // Byte offsets in a thread's scratch, which starts with packed dy.
  std::size_t x_offset = 0;
  std::size_t slots_offset = 0;
  std::size_t local_offset = 0;
  std::size_t bias_offset = 0;
  std::size_t bytes = 0;
};

// The blocks of dw, at most `most`: an equal number of tasks per thread, unless blocks become so
// small that packing dominates.
template <typename Activation>
BlockSize plan_weight_blocks(const Engine<Activation>& engine, BlockSize most, std::int64_t k,
                             std::int64_t n, int threads) {
  std::int64_t row_blocks = ceil_div(n, most.rows);
  std::int64_t column_blocks = ceil_div(k, most.columns);
  while (row_blocks * column_blocks % threads != 0 &&
         (n / row_blocks >= 8 * engine.mr || k / column_blocks >= 8 * engine.nr)) {
    ++(n / row_blocks >= k / column_blocks ? row_blocks : column_blocks);
  }
  // Packing a row of tiles takes as long as the products of several of its tiles.
  const TiledMatrix matrix{n, k, engine.mr, engine.nr, 4, engine.packs_x_once ? 1.0 : 4.0};
  return keep_threads_busy(matrix,
                           {round_up(ceil_div(n, row_blocks), engine.mr),
                            round_up(ceil_div(k, column_blocks), engine.nr)},
                           threads);
}

template <typename Activation>
WeightPlan plan_weight(const Engine<Activation>& engine, std::int64_t tokens, std::int64_t shards,
                       std::int64_t k, std::int64_t n, int threads) {
  WeightPlan plan;
  BlockSize block;
  if (engine.packs_x_once) {
    // A chunk of two shards of BERT-base at 12 x 384. Packed dy takes 640 KB of the L2 cache.
    constexpr std::int64_t kRows = 256;
    plan.tokens = 1280;
    block = plan_weight_blocks(engine, {kRows, round_up(k, engine.nr)}, k, n, threads);
    const std::int64_t padded = round_up(tokens, engine.granularity) + shards * engine.granularity;
    plan.x_stride = padded * engine.nr + kPanelPadding;
    plan.packed_x =
        static_cast<std::size_t>(ceil_div(k, engine.nr) * plan.x_stride) * sizeof(Activation);
  } else {
    // Packed dy fits in 1 MiB of L2, a panel of x in L1. x is packed once per block of rows.
    constexpr std::int64_t kRows = sizeof(Activation) == 2 ? 768 : 384;
    constexpr std::int64_t kColumns = 768;
    plan.tokens = sizeof(Activation) == 2 ? 592 : 256;
    block = plan_weight_blocks(engine, {kRows, kColumns}, k, n, threads);
  }
  plan.rows = block.rows;
  plan.columns = block.columns;
  plan.slots = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(shards, 1)));
  plan.dy_stride = plan.tokens * engine.mr + kPanelPadding;
  std::size_t at = 0;
  const auto take = [&](std::int64_t elements, std::size_t size) {
    const std::size_t begin = at;
    at += (static_cast<std::size_t>(elements) * size + 63) / 64 * 64;
    return begin;
  };
  take(plan.rows / engine.mr * plan.dy_stride, sizeof(Activation));
  plan.x_offset =
      take(engine.packs_x_once ? 0 : plan.tokens * engine.nr + kPanelPadding, sizeof(Activation));
  plan.slots_offset = take(plan.rows * plan.columns * plan.slots, sizeof(float));
  const std::int64_t local_rows = engine.packs_x_once ? plan.rows : engine.mr;
  plan.local_offset = take(plan.slots * local_rows * engine.nr, sizeof(float));
  plan.bias_offset = take(plan.rows * plan.slots, sizeof(float));
  plan.bytes = at;
  return plan;
}

// The token rows of one chunk, cut at the boundaries of the shards.
struct Chunk {
  static constexpr int kMaxSegments = 64;
  std::array<Segment, kMaxSegments> segments;
  std::array<std::int64_t, kMaxSegments> first_row;
  std::array<std::int64_t, kMaxSegments> row_count;
  int count = 0;

  std::int64_t first_token(int segment, std::int64_t granularity) const {
    return segments[segment].first_group * granularity;
  }
  std::int64_t rows() const { return first_row[count - 1] + row_count[count - 1] - first_row[0]; }
  std::int64_t groups() const {
    return segments[count - 1].first_group + segments[count - 1].groups;
  }
};

// Iterates over the shards in chunks. A chunk is the largest subtree of whole shards that starts at
// the current shard and fits, so that only the subtree's sum outlives the chunk. A shard that does
// not fit is cut into equal parts.
class ChunkReader {
 public:
  ChunkReader(Shards shards, std::int64_t tokens, std::int64_t granularity)
      : shards_(shards), capacity_(tokens / granularity), granularity_(granularity) {
    row_ = shards.front();
  }

  // Returns false after the last shard.
  bool next(Chunk& chunk) {
    chunk.count = 0;
    if (shard_ == shard_count()) return false;
    const std::int64_t left = ceil_div(shards_[shard_ + 1] - row_, granularity_);
    if (!fresh_ || left > capacity_) {
      add(chunk, ceil_div(left, ceil_div(left, capacity_)), 0, false);
      return true;
    }
    const int height = subtree();
    for (int i = 1 << height; i > 0; --i) add(chunk, groups_of(shard_), height, i > 1);
    return true;
  }

 private:
  std::size_t shard_count() const { return shards_.size() - 1; }
  std::int64_t groups_of(std::size_t shard) const {
    return ceil_div(shards_[shard + 1] - shards_[shard], granularity_);
  }

  // Height of the largest subtree that starts with this shard and fits.
  int subtree() const {
    std::int64_t groups = groups_of(shard_);
    int height = 0;
    for (std::size_t size = 1; 2 * size <= Chunk::kMaxSegments; size *= 2, ++height) {
      if (shard_ % (2 * size) != 0 || shard_ + 2 * size > shard_count()) break;
      for (std::size_t s = shard_ + size; s < shard_ + 2 * size; ++s) groups += groups_of(s);
      if (groups > capacity_) break;
    }
    return height;
  }

  // Appends the next `groups` groups of this shard to a chunk that is a subtree of `height`.
  void add(Chunk& chunk, std::int64_t groups, int height, bool local) {
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
    segment.local = local;
    row_ += rows;
    fresh_ = row_ == shards_[shard_ + 1];
    const int merges = fresh_ ? std::countr_one(shard_) : 0;
    segment.local_merges = std::min(merges, height);
    segment.merges = merges - segment.local_merges;
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

template <typename Activation>
std::size_t packed_weight_size(const Engine<Activation>& engine, std::int64_t n, std::int64_t k) {
  const std::int64_t forward = round_up(n, engine.nr) * round_up(k, engine.granularity);
  const std::int64_t backward = round_up(k, engine.nr) * round_up(n, engine.granularity);
  return static_cast<std::size_t>(std::max(forward, backward));
}

template <typename Activation>
void pack_weight(const Engine<Activation>& engine, const float* w, std::int64_t n, std::int64_t k,
                 std::int64_t row_begin, std::int64_t row_end, Activation* forward,
                 Activation* backward) {
  engine.pack_weight(w, n, k, row_begin, row_end, forward, backward);
}

template <typename Activation>
std::size_t forward_scratch(const Engine<Activation>& engine, std::int64_t k) {
  return engine.forward_scratch == nullptr ? 0 : engine.forward_scratch(k);
}

template <typename Activation>
void forward(const Engine<Activation>& engine, ThreadPool& pool, const Activation* x,
             const Activation* packed, const float* bias, std::int64_t rows, std::int64_t k,
             std::int64_t n, Activation* y, std::byte* scratch) {
  if (rows <= 0) return;
  const BlockSize plan = plan_forward(engine, rows, n, k, pool.size());
  const std::size_t thread_scratch = forward_scratch(engine, k);
  const std::int64_t column_blocks = ceil_div(n, plan.columns);
  const std::int64_t panel_stride = round_up(k, engine.granularity) * engine.nr;
  pool.run(ceil_div(rows, plan.rows) * column_blocks, [&](std::int64_t task, int thread) {
    const std::int64_t row = task / column_blocks * plan.rows;
    const std::int64_t column = task % column_blocks * plan.columns;
    ForwardBlock<Activation> block;
    block.scratch = scratch + static_cast<std::size_t>(thread) * thread_scratch;
    block.a = x + row * k;
    block.lda = k;
    block.panels = packed + column / engine.nr * panel_stride;
    block.panel_stride = panel_stride;
    block.bias = bias != nullptr ? bias + column : nullptr;
    block.y = y + row * n + column;
    block.ldy = n;
    block.rows = std::min(plan.rows, rows - row);
    block.columns = std::min(plan.columns, n - column);
    block.k = k;
    engine.forward(block);
  });
}

template <typename Activation>
void backward_input(const Engine<Activation>& engine, ThreadPool& pool, const Activation* dy,
                    const Activation* packed, std::int64_t rows, std::int64_t k, std::int64_t n,
                    Activation* dx, std::byte* scratch) {
  forward(engine, pool, dy, packed, nullptr, rows, n, k, dx, scratch);
}

template <typename Activation>
std::size_t linear_forward_scratch(const Engine<Activation>& engine, std::int64_t k, std::int64_t n,
                                   int threads) {
  return forward_scratch(engine, std::max(k, n)) * static_cast<std::size_t>(threads);
}

// Whether x and dy change places.
template <typename Activation>
bool packs_dy_once(const Engine<Activation>& engine, std::int64_t k, std::int64_t n) {
  return engine.packs_x_once && k > n;
}

template <typename Activation>
std::size_t backward_weight_scratch(const Engine<Activation>& engine, std::int64_t rows,
                                    std::int64_t shards, std::int64_t k, std::int64_t n,
                                    int threads) {
  if (packs_dy_once(engine, k, n)) std::swap(k, n);
  const WeightPlan plan = plan_weight(engine, rows, shards, k, n, threads);
  return plan.packed_x + plan.bytes * static_cast<std::size_t>(threads);
}

// The bias gradient of some columns of dy, in the tree order of the weight gradient.
template <typename Activation>
class BiasSums {
 public:
  // `slots`: those of the weight gradient, of `stride` sums each.
  BiasSums(const Engine<Activation>& engine, float* slots, std::int64_t stride,
           std::int64_t columns, float* dbias)
      : engine_(engine), slots_(slots), stride_(stride), columns_(columns), dbias_(dbias) {}

  void begin(const Segment& segment) {
    if (segment.fresh) std::fill_n(sums(segment), columns_, 0.0f);
  }
  void add(const Segment& segment, const Activation* dy, std::int64_t ld, std::int64_t tokens) {
    engine_.add_rows(dy, ld, tokens, columns_, sums(segment));
  }
  void finish(const Segment& segment) {
    float* left = sums(segment);
    for (int m = 0; m < segment.local_merges + segment.merges; ++m) {
      const float* right = left;
      left -= stride_;
      for (std::int64_t c = 0; c < columns_; ++c) left[c] += right[c];
    }
    if (segment.last) std::copy_n(left, columns_, dbias_);
  }

 private:
  float* sums(const Segment& segment) const { return slots_ + segment.level * stride_; }
  const Engine<Activation>& engine_;
  float* slots_;
  std::int64_t stride_;
  std::int64_t columns_;
  float* dbias_;
};

// Cache lines of `elements` consecutive elements that begin with a line.
template <typename Activation>
std::int64_t lines(std::int64_t elements) {
  return ceil_div(elements * static_cast<std::int64_t>(sizeof(Activation)), kCacheLine);
}

// Packs all tokens of x, each shard padded to the granularity.
template <typename Activation>
void pack_x_once(const Engine<Activation>& engine, ThreadPool& pool, const Activation* x,
                 Shards shards, std::int64_t k, const WeightPlan& plan, Activation* packed) {
  const std::int64_t panels = ceil_div(k, engine.nr);
  const std::int64_t each = std::max<std::int64_t>(1, panels / (4 * pool.size()));
  pool.for_ranges(panels, each, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t column = begin * engine.nr;
    Activation* out = packed + begin * plan.x_stride;
    for (std::size_t s = 0; s + 1 < shards.size(); ++s) {
      const std::int64_t tokens = shards[s + 1] - shards[s];
      if (tokens == 0) continue;
      engine.pack_x(x + shards[s] * k + column, k, tokens, std::min(end * engine.nr, k) - column,
                    out, plan.x_stride);
      out += round_up(tokens, engine.granularity) * engine.nr;
    }
  });
}

// The bias gradient alone, if dy is packed once.
template <typename Activation>
void sum_biases(const Engine<Activation>& engine, ThreadPool& pool, const Activation* dy,
                Shards shards, std::int64_t n, const WeightPlan& plan, float* dbias,
                std::byte* scratch) {
  constexpr std::int64_t kColumns = 128;
  const std::int64_t columns = std::min(plan.rows, kColumns);
  pool.run(ceil_div(n, columns), [&](std::int64_t task, int thread) {
    float* const slots = reinterpret_cast<float*>(
        scratch + static_cast<std::size_t>(thread) * plan.bytes + plan.bias_offset);
    const std::int64_t first = task * columns;
    BiasSums<Activation> bias(engine, slots, columns, std::min(columns, n - first), dbias + first);
    ChunkReader reader(shards, plan.tokens, engine.granularity);
    for (Chunk chunk; reader.next(chunk);) {
      for (int s = 0; s < chunk.count; ++s) {
        const Segment& segment = chunk.segments[s];
        bias.begin(segment);
        bias.add(segment, dy + chunk.first_row[s] * n + first, n, chunk.row_count[s]);
        bias.finish(segment);
      }
    }
  });
}

template <typename Activation>
void backward_weight(const Engine<Activation>& engine, ThreadPool& pool, const Activation* x,
                     const Activation* dy, Shards shards, std::int64_t k, std::int64_t n, float* dw,
                     float* dbias, std::byte* scratch) {
  const auto shard_count = static_cast<std::int64_t>(shards.size()) - 1;
  const std::int64_t ldw = k;
  const bool transposed = packs_dy_once(engine, k, n);
  if (transposed) {
    std::swap(x, dy);
    std::swap(k, n);
  }
  const WeightPlan plan =
      plan_weight(engine, shards.back() - shards.front(), shard_count, k, n, pool.size());
  Activation* const all_x = reinterpret_cast<Activation*>(scratch);
  if (engine.packs_x_once) pack_x_once(engine, pool, x, shards, k, plan, all_x);
  if (transposed && dbias != nullptr) {
    sum_biases(engine, pool, x, shards, k, plan, dbias, scratch + plan.packed_x);
    dbias = nullptr;
  }
  const std::int64_t column_blocks = ceil_div(k, plan.columns);
  pool.run(ceil_div(n, plan.rows) * column_blocks, [&](std::int64_t task, int thread) {
    const std::int64_t row = task / column_blocks * plan.rows;
    const std::int64_t column = task % column_blocks * plan.columns;
    std::byte* thread_scratch =
        scratch + plan.packed_x + static_cast<std::size_t>(thread) * plan.bytes;
    Activation* packed_dy = reinterpret_cast<Activation*>(thread_scratch);
    Activation* packed_x = reinterpret_cast<Activation*>(thread_scratch + plan.x_offset);
    float* bias_slots = reinterpret_cast<float*>(thread_scratch + plan.bias_offset);
    WeightBlock<Activation> block;
    block.a = packed_dy;
    block.b = packed_x;
    block.a_stride = plan.dy_stride;
    block.slot_count = plan.slots;
    block.local = reinterpret_cast<float*>(thread_scratch + plan.local_offset);
    block.ldw = ldw;
    block.transposed = transposed;
    block.rows = std::min(plan.rows, n - row);
    const std::int64_t column_end = std::min(column + plan.columns, k);
    const bool sum_bias = dbias != nullptr && column == 0;
    BiasSums<Activation> bias(engine, bias_slots, plan.rows, block.rows, dbias + row);
    ChunkReader reader(shards, plan.tokens, engine.granularity);
    std::int64_t first_group = 0;  // of the chunk, in x that is packed once
    for (Chunk chunk; reader.next(chunk);) {
      block.segments = chunk.segments.data();
      block.segment_count = chunk.count;
      for (int s = 0; s < chunk.count; ++s) {
        const Segment& segment = chunk.segments[s];
        if (sum_bias) bias.begin(segment);
        for (std::int64_t t = 0; t < chunk.row_count[s]; t += kPackedTokens) {
          const std::int64_t tokens = std::min(kPackedTokens, chunk.row_count[s] - t);
          const Activation* from = dy + (chunk.first_row[s] + t) * n + row;
          engine.pack_dy(from, n, tokens, block.rows,
                         packed_dy + (chunk.first_token(s, engine.granularity) + t) * engine.mr,
                         plan.dy_stride);
          if (sum_bias) bias.add(segment, from, n, tokens);
        }
        if (sum_bias) bias.finish(segment);
      }
      const std::int64_t groups = chunk.groups();
      block.slots = reinterpret_cast<float*>(thread_scratch + plan.slots_offset);
      for (std::int64_t c = column; c < column_end; c += engine.nr) {
        block.columns = std::min<std::int64_t>(engine.nr, column_end - c);
        block.dw = dw + (transposed ? c * ldw + row : row * ldw + c);
        if (engine.packs_x_once) {
          block.b =
              all_x + c / engine.nr * plan.x_stride + first_group * engine.granularity * engine.nr;
          block.next = {};
          if (c + engine.nr < column_end) {
            block.next = {block.b + plan.x_stride, 0, 1,
                          lines<Activation>(groups * engine.granularity * engine.nr)};
          }
        } else {
          // The next panel of x, or the rows of dy of the next chunk, to which panels of packed dy
          // that are no longer used leave L2.
          if (c + engine.nr < column_end) {
            block.next = {x + chunk.first_row[0] * k + c + engine.nr, k, chunk.rows(), 1};
          } else {
            const std::int64_t end = chunk.first_row[0] + chunk.rows();
            block.next = {dy + end * n + row, n, std::min(plan.tokens, shards.back() - end),
                          lines<Activation>(block.rows)};
          }
          for (int s = 0; s < chunk.count; ++s) {
            engine.pack_x(x + chunk.first_row[s] * k + c, k, chunk.row_count[s], block.columns,
                          packed_x + chunk.first_token(s, engine.granularity) * engine.nr, 0);
          }
        }
        engine.weight(block);
        block.slots += plan.rows * engine.nr * plan.slots;
      }
      first_group += groups;
    }
  });
}

}  // namespace

template <typename Activation>
void fill_gemm_native(Ops<Activation>& ops, const Engine<Activation>& engine) {
  ops.packed_weight_size.template bind<packed_weight_size<Activation>>(engine);
  ops.pack_weight.template bind<pack_weight<Activation>>(engine);
  ops.linear_forward.template bind<forward<Activation>>(engine);
  ops.linear_backward_input.template bind<backward_input<Activation>>(engine);
  ops.linear_forward_scratch.template bind<linear_forward_scratch<Activation>>(engine);
  ops.linear_backward_weight.template bind<backward_weight<Activation>>(engine);
  ops.linear_backward_weight_scratch.template bind<backward_weight_scratch<Activation>>(engine);
}
template <typename Activation>
LayerUse layer_thread_use(const Engine<Activation>& engine, std::int64_t rows, std::int64_t k,
                          std::int64_t n, int threads) {
  const auto use = [&](std::int64_t matrix_rows, std::int64_t columns, BlockSize block) {
    return thread_use({matrix_rows, columns, engine.mr, engine.nr}, block, threads);
  };
  const bool transposed = packs_dy_once(engine, k, n);
  const std::int64_t weight_rows = transposed ? k : n;
  const std::int64_t weight_columns = transposed ? n : k;
  const WeightPlan weight = plan_weight(engine, rows, 1, weight_columns, weight_rows, threads);
  return {use(rows, n, plan_forward(engine, rows, n, k, threads)),
          use(rows, k, plan_forward(engine, rows, k, n, threads)),
          use(weight_rows, weight_columns, {weight.rows, weight.columns})};
}
template LayerUse layer_thread_use(const Engine<bf16>&, std::int64_t, std::int64_t, std::int64_t,
                                   int);

template void fill_gemm_native<float>(Ops<float>&, const Engine<float>&);
template void fill_gemm_native<bf16>(Ops<bf16>&, const Engine<bf16>&);

}  // namespace tilewright::kernels
