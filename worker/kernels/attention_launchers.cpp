// Launches attention in the tasks of attention_plan.h.
#include "common/base/check.h"
#include "worker/kernels/attention_plan.h"
#include "worker/kernels/integers.h"
#include "worker/kernels/launchers.h"

namespace tilewright::kernels {
namespace {

// Bytes of scratch per thread, a multiple of a cache line so that every thread's part is aligned.
template <typename Activation>
std::size_t thread_scratch_bytes(const KernelTable<Activation>& table, std::int64_t max_seqlen,
                                 std::int64_t head_size) {
  return (table.attention_scratch(max_seqlen, head_size) + 63) / 64 * 64;
}

template <typename Activation>
std::size_t attention_scratch(const KernelTable<Activation>& table, std::int64_t max_seqlen,
                              std::int64_t /*heads*/, std::int64_t head_size, int threads) {
  return thread_scratch_bytes(table, max_seqlen, head_size) * static_cast<std::size_t>(threads);
}

template <typename Activation>
void check_shape(const AttentionForward<Activation>& a) {
  TW_CHECK(a.head_size > 0 && a.head_size % kHeadSizeUnit == 0,
           "head size must be a positive multiple of {}, found {}", kHeadSizeUnit, a.head_size);
  TW_CHECK(a.heads <= 65536, "number of heads must be at most 65536 (dropout counter), found {}",
           a.heads);
  for (std::int64_t b = 0; b < a.B; ++b) {
    const std::int64_t length = a.cu_seqlens[b + 1] - a.cu_seqlens[b];
    TW_CHECK(length >= 0 && length <= a.max_seqlen,
             "example {} has {} tokens, expected 0 to {} (max_seqlen)", b, length, a.max_seqlen);
    TW_CHECK(a.attended == nullptr || length == 0 || (a.attended[b] > 0 && a.attended[b] <= length),
             "attended[{}] must be between 1 and {}, found {}", b, length, a.attended[b]);
  }
}

template <typename Activation>
AttentionSize size_of(const AttentionForward<Activation>& a) {
  return {a.B, a.heads, a.max_seqlen};
}

// Calls body(example, heads, queries, thread) for all tasks that have queries.
template <typename Activation, typename Body>
void for_tasks(ThreadPool& pool, const AttentionForward<Activation>& a, const AttentionCut& cut,
               Body&& body) {
  const std::int64_t head_parts = ceil_div(a.heads, cut.heads);
  const std::int64_t query_parts = ceil_div(a.max_seqlen, cut.queries);
  pool.run(a.B * head_parts * query_parts, [&](std::int64_t task, int thread) {
    const std::int64_t example = task / query_parts / head_parts;
    const std::int64_t S = a.cu_seqlens[example + 1] - a.cu_seqlens[example];
    const std::int64_t head = task / query_parts % head_parts * cut.heads;
    const std::int64_t query = task % query_parts * cut.queries;
    if (query >= S) return;
    body(example, Range{head, smaller(head + cut.heads, a.heads)},
         Range{query, smaller(query + cut.queries, S)}, thread);
  });
}

template <typename Activation>
void attention_forward(const KernelTable<Activation>& table, ThreadPool& pool,
                       const AttentionForward<Activation>& a, std::byte* scratch) {
  check_shape(a);
  const DropoutStream stream = make_dropout_stream(a.dropout);
  const std::size_t scratch_bytes = thread_scratch_bytes(table, a.max_seqlen, a.head_size);
  for_tasks(pool, a, cut_attention_forward(size_of(a), pool.size()),
            [&](std::int64_t example, Range heads, Range queries, int thread) {
              table.attention_forward(a, stream, example, heads, queries,
                                      scratch + static_cast<std::size_t>(thread) * scratch_bytes);
            });
}

template <typename Activation>
void attention_backward(const KernelTable<Activation>& table, ThreadPool& pool,
                        const AttentionBackward<Activation>& a, std::byte* scratch) {
  check_shape(a.forward);
  const DropoutStream stream = make_dropout_stream(a.forward.dropout);
  const std::size_t scratch_bytes =
      thread_scratch_bytes(table, a.forward.max_seqlen, a.forward.head_size);
  for_tasks(pool, a.forward, cut_attention_backward(size_of(a.forward), pool.size()),
            [&](std::int64_t example, Range heads, Range, int thread) {
              table.attention_backward(a, stream, example, heads,
                                       scratch + static_cast<std::size_t>(thread) * scratch_bytes);
            });
}

}  // namespace

template <typename Activation>
void fill_attention_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table) {
  ops.attention_forward.template bind<attention_forward<Activation>>(table);
  ops.attention_backward.template bind<attention_backward<Activation>>(table);
  ops.attention_scratch.template bind<attention_scratch<Activation>>(table);
}
template void fill_attention_launchers<float>(Ops<float>&, const KernelTable<float>&);
template void fill_attention_launchers<bf16>(Ops<bf16>&, const KernelTable<bf16>&);

}  // namespace tilewright::kernels
