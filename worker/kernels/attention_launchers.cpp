// Launches attention: each task is some heads of one example. Heads are independent of each
// other.
#include "common/base/check.h"
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

// Calls body(example, heads, thread) for all heads of all examples. Neighbouring heads are
// neighbours in memory, so a task takes all heads of an example, or fewer if the threads would not
// get eight tasks each.
template <typename Activation, typename Body>
void for_heads(ThreadPool& pool, const AttentionForward<Activation>& a, Body&& body) {
  std::int64_t parts = 1;
  while (parts < a.heads && a.B * parts < 8 * pool.size()) ++parts;
  const std::int64_t each = (a.heads + parts - 1) / parts;
  parts = (a.heads + each - 1) / each;
  pool.run(a.B * parts, [&](std::int64_t task, int thread) {
    const std::int64_t begin = task % parts * each;
    body(task / parts, Range{begin, begin + each < a.heads ? begin + each : a.heads}, thread);
  });
}

template <typename Activation>
void attention_forward(const KernelTable<Activation>& table, ThreadPool& pool,
                       const AttentionForward<Activation>& a, std::byte* scratch) {
  check_shape(a);
  const DropoutStream stream = make_dropout_stream(a.dropout);
  const std::size_t scratch_bytes = thread_scratch_bytes(table, a.max_seqlen, a.head_size);
  for_heads(pool, a, [&](std::int64_t example, Range heads, int thread) {
    table.attention_forward(a, stream, example, heads,
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
  for_heads(pool, a.forward, [&](std::int64_t example, Range heads, int thread) {
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
