// Launches sums over tokens by the shard tree. Each task is a range of columns or ids, whose sums
// are independent, and goes through the shards in order.
//
// Partial sums form a stack, like the digits of a binary counter: before shard s is pushed,
// neighbours whose common subtree does not contain s are added. So at most log2(shards) + 1 partial
// sums exist at the same time.
#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "worker/kernels/launchers.h"

namespace tilewright::kernels {
namespace {

constexpr int kMaxDepth = 17;  // up to 2^16 shards

void check_shards(Shards shards) {
  TW_CHECK(shards.size() >= 2 && std::has_single_bit(shards.size() - 1) &&
               shards.size() - 1 <= (std::size_t{1} << (kMaxDepth - 1)),
           "number of shard offsets must be 2^k + 1 with k <= {}, found {}", kMaxDepth - 1,
           shards.size());
}

void add_to(float* __restrict a, const float* __restrict b, std::int64_t count) {
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): count is at most TreeSum's width
  for (std::int64_t i = 0; i < count; ++i) a[i] += b[i];
}

// A stack of partial sums of kWidth floats. The caller adds shards in ascending order and may skip
// empty ones. Skipping one can change only the sign of a zero, so the launchers add +0 to
// the total, which turns -0 (from an underflow) into +0.
template <int kWidth>
class TreeSum {
 public:
  explicit TreeSum(std::int64_t width) : width_(width) {}

  template <typename Accumulate>
  void add(std::uint32_t shard, Accumulate&& accumulate) {
    while (size_ >= 2 &&
           level(shard_[size_ - 2], shard_[size_ - 1]) < level(shard_[size_ - 1], shard)) {
      merge();
    }
    float* sum = sum_[size_];
    for (std::int64_t i = 0; i < width_; ++i) sum[i] = 0.0f;
    shard_[size_++] = shard;
    accumulate(sum);
  }
  // The total; null if no shard was added.
  const float* finish() {
    while (size_ >= 2) merge();
    return size_ == 0 ? nullptr : sum_[0];
  }
  void reset() { size_ = 0; }

 private:
  // Height of the smallest subtree that contains both shards.
  static int level(std::uint32_t a, std::uint32_t b) { return std::bit_width(a ^ b); }
  void merge() {
    add_to(sum_[size_ - 2], sum_[size_ - 1], width_);
    --size_;
  }

  std::int64_t width_;
  int size_ = 0;
  std::uint32_t shard_[kMaxDepth + 1];
  alignas(64) float sum_[kMaxDepth + 1][kWidth];
};

// Maximum columns of a task: the partial sums of gamma and beta fit in the L1 cache.
constexpr std::int64_t kNormColumns = 256;

// Columns per task: equal shares for the threads, in whole cache lines.
std::int64_t norm_columns(std::int64_t H, int threads) {
  const std::int64_t rounds = (H + threads * kNormColumns - 1) / (threads * kNormColumns);
  const std::int64_t share = (H + rounds * threads - 1) / (rounds * threads);
  return (share + 15) / 16 * 16;
}

// Scratch of add_norm_backward: for each block of up to kNormRows rows of one shard its rows and
// its sums of d_gamma [H] and d_beta [H].
struct NormBlocks {
  NormBlocks(std::byte* scratch, std::int64_t count, std::int64_t columns)
      : H(columns),
        sums(reinterpret_cast<float*>(scratch)),
        rows(reinterpret_cast<Range*>(sums + count * 2 * H)) {}
  static std::int64_t count(std::int64_t shard_rows) {
    return (shard_rows + kNormRows - 1) / kNormRows;
  }
  float* d_gamma(std::int64_t block) const { return sums + block * 2 * H; }
  float* d_beta(std::int64_t block) const { return d_gamma(block) + H; }

  std::int64_t H;
  float* sums;
  Range* rows;
};

std::size_t add_norm_backward_scratch(std::int64_t rows, std::int64_t shards, std::int64_t H) {
  // Each shard ends with at most one block of fewer than kNormRows rows.
  const std::int64_t blocks = rows / kNormRows + std::min(rows, shards);
  return static_cast<std::size_t>(blocks) *
         (2 * static_cast<std::size_t>(H) * sizeof(float) + sizeof(Range));
}

template <typename Activation>
void add_norm_backward(const KernelTable<Activation>& table, ThreadPool& pool, float* d_stream,
                       const Activation* dy_branch, const float* sum, const float* stats,
                       Shards shards, std::int64_t H, LayerNorm norm, Dropout dropout,
                       RowIdentity identity, Activation* dx, float* d_gamma, float* d_beta,
                       std::byte* scratch) {
  check_width(H);
  check_shards(shards);
  std::int64_t count = 0;
  for (std::size_t s = 0; s + 1 < shards.size(); ++s) {
    count += NormBlocks::count(shards[s + 1] - shards[s]);
  }
  const NormBlocks blocks(scratch, count, H);
  Range* next = blocks.rows;
  for (std::size_t s = 0; s + 1 < shards.size(); ++s) {
    for (std::int64_t row = shards[s]; row < shards[s + 1]; row += kNormRows) {
      *next++ = {row, std::min<std::int64_t>(row + kNormRows, shards[s + 1])};
    }
  }
  NormBackward<Activation> a;
  a.d_stream = d_stream;
  a.dy_branch = dy_branch;
  a.sum = sum;
  a.stats = stats;
  a.H = H;
  a.norm = norm;
  a.dropout = make_dropout_stream(dropout);
  a.identity = identity;
  a.dx = dx;
  pool.run(count, [&](std::int64_t block, int) {
    table.add_norm_backward(a, blocks.rows[block], blocks.d_gamma(block), blocks.d_beta(block));
  });
  pool.for_ranges(H, norm_columns(H, pool.size()), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t width = end - begin;
    TreeSum<2 * kNormColumns> tree(2 * width);
    std::int64_t block = 0;
    for (std::uint32_t s = 0; s + 1 < shards.size(); ++s) {
      const std::int64_t last = block + NormBlocks::count(shards[s + 1] - shards[s]);
      if (block == last) continue;
      tree.add(s, [&](float* partial) {
        for (; block < last; ++block) {
          add_to(partial, blocks.d_gamma(block) + begin, width);
          add_to(partial + width, blocks.d_beta(block) + begin, width);
        }
      });
    }
    const float* total = tree.finish();
    for (std::int64_t i = 0; i < width; ++i) {
      // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the tree has 2 width sums
      d_gamma[begin + i] = total == nullptr ? 0.0f : total[i] + 0.0f;
      d_beta[begin + i] = total == nullptr ? 0.0f : total[width + i] + 0.0f;
    }
  });
}

constexpr std::int64_t kEmbeddingColumns = 256;
// Ids per task when there are many. With few (token types, positions) each id is a task.
constexpr std::int64_t kEmbeddingIds = 16;

// Computes columns of the gradient of id r.
void sum_embedding_row(const ParameterKernelTable& table, const EmbeddingBackward& e,
                       std::int64_t r, Range columns, TreeSum<kEmbeddingColumns>& tree) {
  const std::int64_t width = columns.end - columns.begin;
  const std::int32_t* occurrence = e.occurrences + e.row_offsets[r];
  const std::int32_t* const last = e.occurrences + e.row_offsets[r + 1];
  tree.reset();
  std::uint32_t shard = 0;
  while (occurrence != last) {
    while (*occurrence >= e.shards[shard + 1]) ++shard;
    const std::int32_t* next = occurrence;
    while (next != last && *next < e.shards[shard + 1]) ++next;
    tree.add(shard, [&](float* partial) {
      table.add_rows(e.d_sum, e.H, occurrence, next - occurrence, columns, partial);
    });
    occurrence = next;
  }
  const float* total = tree.finish();
  float* grad = e.grad + r * e.H + columns.begin;
  for (std::int64_t i = 0; i < width; ++i) grad[i] = total == nullptr ? 0.0f : total[i] + 0.0f;
}

void embedding_backward(const ParameterKernelTable& table, ThreadPool& pool,
                        const EmbeddingBackward& e) {
  check_shards(e.shards);
  const std::int64_t grain = e.R >= 16 * kEmbeddingIds ? kEmbeddingIds : 1;
  const std::int64_t groups = (e.R + grain - 1) / grain;
  const std::int64_t blocks = (e.H + kEmbeddingColumns - 1) / kEmbeddingColumns;
  pool.run(groups * blocks, [&](std::int64_t task, int) {
    const std::int64_t begin = task % blocks * kEmbeddingColumns;
    const Range columns = {begin,
                           begin + kEmbeddingColumns < e.H ? begin + kEmbeddingColumns : e.H};
    const std::int64_t first = task / blocks * grain;
    TreeSum<kEmbeddingColumns> tree(columns.end - columns.begin);
    for (std::int64_t r = first; r < first + grain && r < e.R; ++r) {
      sum_embedding_row(table, e, r, columns, tree);
    }
  });
}

void adamw(const ParameterKernelTable& table, const AdamW& a, std::int64_t count,
           const float* gradient, float* parameter, float* m, float* v) {
  table.adamw(a, count, gradient, parameter, m, v);
}

double sum_of_squares(const ParameterKernelTable& table, const float* x, std::int64_t count) {
  return table.sum_of_squares(x, count);
}

void copy(const ParameterKernelTable& table, const float* from, std::int64_t count, float* to) {
  TW_CHECK(reinterpret_cast<std::uintptr_t>(to) % 64 == 0, "copy to {}: expected 64-byte alignment",
           static_cast<void*>(to));
  table.copy(from, count, to);
}

}  // namespace

template <typename Activation>
void fill_shard_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table) {
  ops.add_norm_backward.template bind<add_norm_backward<Activation>>(table);
  ops.add_norm_backward_scratch.template bind<add_norm_backward_scratch>(table.name);
}
template void fill_shard_launchers<float>(Ops<float>&, const KernelTable<float>&);
template void fill_shard_launchers<bf16>(Ops<bf16>&, const KernelTable<bf16>&);

void fill_parameter_launchers(ParameterOps& ops, const ParameterKernelTable& table) {
  ops.embedding_backward.bind<embedding_backward>(table);
  ops.adamw.bind<adamw>(table);
  ops.sum_of_squares.bind<sum_of_squares>(table);
  ops.copy.bind<copy>(table);
}

}  // namespace tilewright::kernels
