#include "worker/kernels/attention_plan.h"

#include <algorithm>

#include "worker/kernels/dropout/dropout.h"
#include "worker/kernels/integers.h"

namespace tilewright::kernels {
namespace {

// The time to pack the keys and values of a head, which every task of its queries repeats, in units
// of the time of a block of queries: 0.06 on Zen 5 (S = 384, heads of 64), more where products are
// faster.
constexpr double kPackCost = 0.1;

std::int64_t query_blocks(const AttentionSize& size) {
  return std::max<std::int64_t>(ceil_div(size.max_seqlen, kDropoutBlock), 1);
}

// Tasks that the slowest thread computes, all counted as whole ones.
std::int64_t rounds(const AttentionSize& size, std::int64_t heads, std::int64_t blocks,
                    int threads) {
  const std::int64_t tasks =
      size.B * ceil_div(size.heads, heads) * ceil_div(query_blocks(size), blocks);
  return ceil_div(tasks, threads);
}

}  // namespace

AttentionCut cut_attention_backward(const AttentionSize& size, int threads) {
  // Neighbouring heads are neighbours in memory, so a task takes all heads of an example, or fewer
  // if the threads would not get eight tasks each.
  std::int64_t parts = 1;
  while (parts < size.heads && size.B * parts < 8 * threads) ++parts;
  return {ceil_div(size.heads, parts), query_blocks(size) * kDropoutBlock};
}

AttentionCut cut_attention_forward(const AttentionSize& size, int threads) {
  AttentionCut best = cut_attention_backward(size, threads);
  if (best.heads > 1) return best;
  double best_time = 0;
  for (std::int64_t blocks = query_blocks(size); blocks > 0; --blocks) {
    const double time = static_cast<double>(rounds(size, 1, blocks, threads)) *
                        (static_cast<double>(blocks) + kPackCost);
    if (best_time != 0 && time >= best_time) continue;
    best_time = time;
    best.queries = blocks * kDropoutBlock;
  }
  return best;
}

double thread_use(const AttentionSize& size, const AttentionCut& cut, int threads) {
  const std::int64_t blocks = cut.queries / kDropoutBlock;
  const std::int64_t slowest = rounds(size, cut.heads, blocks, threads) * cut.heads * blocks;
  if (slowest == 0) return 1;
  return static_cast<double>(size.B * size.heads * query_blocks(size)) /
         static_cast<double>(threads * slowest);
}

}  // namespace tilewright::kernels
