// Sums over tokens by the tree of shards: threads take columns or ids, whose sums do not depend on
// each other, and each goes through its shards in order.
//
// Partial sums stand on a stack as in a binary counter: before shard s joins, neighbours whose
// common subtree does not contain s are added, so at most log2(shards) + 1 partials exist at once.
#include <bit>

#include "common/base/check.h"
#include "worker/kernels/drivers.h"

namespace tilewright::kernels {
namespace {

constexpr int kMaxDepth = 17;  // up to 2^16 shards

void check_shards(Shards shards) {
  TW_CHECK(shards.size() >= 2 && std::has_single_bit(shards.size() - 1) &&
               shards.size() - 1 <= (std::size_t{1} << (kMaxDepth - 1)),
           "{} shard offsets: 2^k + 1 are expected, k at most {}", shards.size(), kMaxDepth - 1);
}

// A stack of partial sums of kWidth floats. `add(shard, accumulate)` brings shard after shard, in
// rising order; shards left out count as zero. Leaving them out changes no bit but the sign of a
// zero, so the drivers add +0 to the whole, which makes -0 (an underflow's) +0.
template <int kWidth>
class TreeSum {
 public:
  TreeSum(const ParameterLoops& loops, std::int64_t width) : loops_(loops), width_(width) {}

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
  // The whole sum; null when nothing was added.
  const float* finish() {
    while (size_ >= 2) merge();
    return size_ == 0 ? nullptr : sum_[0];
  }
  void restart() { size_ = 0; }

 private:
  // Height of the smallest subtree with both shards.
  static int level(std::uint32_t a, std::uint32_t b) { return std::bit_width(a ^ b); }
  void merge() {
    loops_.add(sum_[size_ - 2], sum_[size_ - 1], width_);
    --size_;
  }

  const ParameterLoops& loops_;
  std::int64_t width_;
  int size_ = 0;
  std::uint32_t shard_[kMaxDepth + 1];
  alignas(64) float sum_[kMaxDepth + 1][kWidth];
};

// Most columns of one task: gamma's and beta's partials of a shard stay in the first-level cache.
constexpr std::int64_t kNormColumns = 256;

// Equal shares for the threads, in whole cache lines.
std::int64_t norm_columns(std::int64_t H, int threads) {
  const std::int64_t rounds = (H + threads * kNormColumns - 1) / (threads * kNormColumns);
  const std::int64_t share = (H + rounds * threads - 1) / (rounds * threads);
  return (share + 15) / 16 * 16;
}

template <Isa kIsa>
void norm_backward_parameters(ThreadPool& pool, const float* dy32, const float* sum,
                              const float* stats, Shards shards, std::int64_t H, float* d_gamma,
                              float* d_beta) {
  check_shards(shards);
  const ParameterLoops& loops = parameter_loops(kIsa);
  pool.for_ranges(H, norm_columns(H, pool.size()), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t width = end - begin;
    TreeSum<2 * kNormColumns> tree(loops, 2 * width);
    for (std::uint32_t s = 0; s + 1 < shards.size(); ++s) {
      if (shards[s] == shards[s + 1]) continue;
      tree.add(s, [&](float* partial) {
        loops.norm_parameters(dy32, sum, stats, H, {shards[s], shards[s + 1]}, {begin, end},
                              partial, partial + width);
      });
    }
    const float* total = tree.finish();
    for (std::int64_t i = 0; i < width; ++i) {
      d_gamma[begin + i] = total == nullptr ? 0.0f : total[i] + 0.0f;
      d_beta[begin + i] = total == nullptr ? 0.0f : total[width + i] + 0.0f;
    }
  });
}

constexpr std::int64_t kEmbeddingColumns = 256;
// Ids of one task where there are many; of few ids (token types, positions) each one is a task.
constexpr std::int64_t kEmbeddingIds = 16;

// One id's gradient in columns [begin, end).
void embed_id(const ParameterLoops& loops, const EmbeddingBackward& e, std::int64_t r,
              Range columns, TreeSum<kEmbeddingColumns>& tree) {
  const std::int64_t width = columns.end - columns.begin;
  const std::int32_t* occurrence = e.occurrences + e.row_offsets[r];
  const std::int32_t* const last = e.occurrences + e.row_offsets[r + 1];
  tree.restart();
  std::uint32_t shard = 0;
  while (occurrence != last) {
    while (*occurrence >= e.shards[shard + 1]) ++shard;
    const std::int32_t* next = occurrence;
    while (next != last && *next < e.shards[shard + 1]) ++next;
    tree.add(shard, [&](float* partial) {
      loops.add_rows(e.d_sum, e.H, occurrence, next - occurrence, columns, partial);
    });
    occurrence = next;
  }
  const float* total = tree.finish();
  float* grad = e.grad + r * e.H + columns.begin;
  for (std::int64_t i = 0; i < width; ++i) grad[i] = total == nullptr ? 0.0f : total[i];
}

template <Isa kIsa>
void embedding_backward(ThreadPool& pool, const EmbeddingBackward& e) {
  check_shards(e.shards);
  const ParameterLoops& loops = parameter_loops(kIsa);
  const std::int64_t grain = e.R >= 16 * kEmbeddingIds ? kEmbeddingIds : 1;
  const std::int64_t groups = (e.R + grain - 1) / grain;
  const std::int64_t blocks = (e.H + kEmbeddingColumns - 1) / kEmbeddingColumns;
  pool.run(groups * blocks, [&](std::int64_t task, int) {
    const std::int64_t begin = task % blocks * kEmbeddingColumns;
    const Range columns = {begin,
                           begin + kEmbeddingColumns < e.H ? begin + kEmbeddingColumns : e.H};
    const std::int64_t first = task / blocks * grain;
    TreeSum<kEmbeddingColumns> tree(loops, columns.end - columns.begin);
    for (std::int64_t r = first; r < first + grain && r < e.R; ++r) {
      embed_id(loops, e, r, columns, tree);
    }
  });
}

}  // namespace

template <typename T, Isa kIsa>
void fill_shard_drivers(Ops<T>& ops) {
  ops.norm_backward_parameters = {norm_backward_parameters<kIsa>, loops_name(kIsa)};
}

template <Isa kIsa>
void fill_shard_drivers(ParameterOps& ops) {
  const ParameterLoops& loops = parameter_loops(kIsa);
  ops.embedding_backward = {embedding_backward<kIsa>, loops_name(kIsa)};
  ops.adamw = {loops.adamw, loops_name(kIsa)};
  ops.sum_of_squares = {loops.sum_of_squares, loops_name(kIsa)};
}

#define TW_INSTANTIATE(T, isa) template void fill_shard_drivers<T, isa>(Ops<T>&);
TW_FOR_EACH_TABLE(TW_INSTANTIATE)
template void fill_shard_drivers<Isa::kRef>(ParameterOps&);
template void fill_shard_drivers<Isa::kAvx2>(ParameterOps&);
template void fill_shard_drivers<Isa::kAvx512>(ParameterOps&);
template void fill_shard_drivers<Isa::kAvx512Bf16>(ParameterOps&);
template void fill_shard_drivers<Isa::kAmx>(ParameterOps&);

}  // namespace tilewright::kernels
