// How attention is cut into tasks, without a change of any bit: heads are independent of each
// other, and so are forward's blocks of queries. Backward sums dK and dV over all queries of a
// head.
#pragma once

#include <cstdint>

namespace tilewright::kernels {

struct AttentionSize {
  std::int64_t B = 0;
  std::int64_t heads = 0;
  std::int64_t max_seqlen = 0;  // tokens of the longest example
};

// A task is `heads` heads of one example, or `queries` queries of one head. The last task of an
// example or head is smaller.
struct AttentionCut {
  std::int64_t heads = 1;
  std::int64_t queries = 0;  // a multiple of kDropoutBlock
};

AttentionCut cut_attention_forward(const AttentionSize& size, int threads);
AttentionCut cut_attention_backward(const AttentionSize& size, int threads);

// The part of the threads' time that goes into products if all examples have max_seqlen tokens,
// each thread takes the next task when it has finished one, and packing takes no time.
double thread_use(const AttentionSize& size, const AttentionCut& cut, int threads);

}  // namespace tilewright::kernels
