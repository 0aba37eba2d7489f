// Attention: threads take pairs of example and head, which do not depend on each other.
#include "common/base/check.h"
#include "worker/kernels/drivers.h"

namespace tilewright::kernels {
namespace {

// Room for one thread, a multiple of a cache line so that the next one's stays aligned.
template <typename T, Isa kIsa>
std::size_t thread_scratch(std::int64_t max_seqlen, std::int64_t head_size) {
  return (loops<T>(kIsa).attention_scratch(max_seqlen, head_size) + 63) / 64 * 64;
}

template <typename T, Isa kIsa>
std::size_t attention_scratch(std::int64_t max_seqlen, std::int64_t /*heads*/,
                              std::int64_t head_size, int threads) {
  return thread_scratch<T, kIsa>(max_seqlen, head_size) * static_cast<std::size_t>(threads);
}

template <typename T>
void check_shape(const AttentionForward<T>& a) {
  TW_CHECK(a.head_size > 0 && a.head_size % 8 == 0, "heads of size {}: a multiple of 8 is expected",
           a.head_size);
  TW_CHECK(a.heads <= 65536, "{} heads: dropout tells 65536 apart", a.heads);
  for (std::int64_t b = 0; b < a.B; ++b) {
    const std::int64_t length = a.cu_seqlens[b + 1] - a.cu_seqlens[b];
    TW_CHECK(length >= 0 && length <= a.max_seqlen,
             "example {} has {} tokens, but the scratch is for 0 to {}", b, length, a.max_seqlen);
    TW_CHECK(a.attended == nullptr || length == 0 || (a.attended[b] > 0 && a.attended[b] <= length),
             "{} of example {}'s {} tokens are attended to, but some must be", a.attended[b], b,
             length);
  }
}

template <typename T, Isa kIsa>
void attention_forward(ThreadPool& pool, const AttentionForward<T>& a, std::byte* scratch) {
  check_shape(a);
  const DropoutStream stream = make_dropout_stream(a.dropout);
  const std::size_t room = thread_scratch<T, kIsa>(a.max_seqlen, a.head_size);
  pool.run(a.B * a.heads, [&](std::int64_t task, int thread) {
    loops<T>(kIsa).attention_forward(a, stream, task / a.heads, task % a.heads,
                                     scratch + static_cast<std::size_t>(thread) * room);
  });
}

template <typename T, Isa kIsa>
void attention_backward(ThreadPool& pool, const AttentionBackward<T>& a, std::byte* scratch) {
  check_shape(a.forward);
  const DropoutStream stream = make_dropout_stream(a.forward.dropout);
  const std::size_t room = thread_scratch<T, kIsa>(a.forward.max_seqlen, a.forward.head_size);
  pool.run(a.forward.B * a.forward.heads, [&](std::int64_t task, int thread) {
    loops<T>(kIsa).attention_backward(a, stream, task / a.forward.heads, task % a.forward.heads,
                                      scratch + static_cast<std::size_t>(thread) * room);
  });
}

}  // namespace

template <typename T, Isa kIsa>
void fill_attention_drivers(Ops<T>& ops) {
  const char* name = loops_name(kIsa);
  ops.attention_forward = {attention_forward<T, kIsa>, name};
  ops.attention_backward = {attention_backward<T, kIsa>, name};
  ops.attention_scratch = {attention_scratch<T, kIsa>, name};
}

#define TW_INSTANTIATE(T, isa) template void fill_attention_drivers<T, isa>(Ops<T>&);
TW_FOR_EACH_TABLE(TW_INSTANTIATE)

}  // namespace tilewright::kernels
