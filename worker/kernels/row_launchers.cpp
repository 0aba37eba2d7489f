// Launches kernels whose rows or elements are independent: each task is a range of them.
#include "common/base/check.h"
#include "worker/kernels/launchers.h"

namespace tilewright::kernels {
namespace {

// Approximate task size in elements: large relative to the cost of dispatching a task (about
// 1 us), small relative to a thread's share of a step.
constexpr std::int64_t kTaskElements = 16384;

std::int64_t rows_per_task(std::int64_t H) { return H >= kTaskElements ? 1 : kTaskElements / H; }

template <typename Arguments>
void run_rows(ThreadPool& pool, void (*kernel)(const Arguments&, Range), const Arguments& arguments,
              std::int64_t rows) {
  check_width(arguments.H);
  pool.for_ranges(rows, rows_per_task(arguments.H), [&](std::int64_t begin, std::int64_t end) {
    kernel(arguments, {begin, end});
  });
}

// Arguments shared by the row kernels with dropout.
template <typename Arguments>
Arguments row_arguments(std::int64_t H, const Dropout& dropout, RowIdentity identity) {
  Arguments a;
  a.H = H;
  a.dropout = make_dropout_stream(dropout);
  a.identity = identity;
  return a;
}

// Arguments shared by embed_norm and add_norm.
template <typename Activation>
NormForward<Activation> norm_forward(std::int64_t H, LayerNorm norm, const Dropout& dropout,
                                     RowIdentity identity, float* sum, float* stats,
                                     Activation* y) {
  auto a = row_arguments<NormForward<Activation>>(H, dropout, identity);
  a.norm = norm;
  a.sum = sum;
  a.stats = stats;
  a.y = y;
  return a;
}

template <typename Activation>
void embed_norm_forward(const KernelTable<Activation>& table, ThreadPool& pool,
                        const std::int32_t* ids, const std::int32_t* positions,
                        const std::int32_t* types, const float* word, const float* position,
                        const float* type, std::int64_t rows, std::int64_t H, LayerNorm norm,
                        Dropout dropout, RowIdentity identity, float* sum, float* stats, float* y32,
                        Activation* y) {
  NormForward<Activation> a = norm_forward(H, norm, dropout, identity, sum, stats, y);
  a.y32 = y32;
  a.ids = ids;
  a.positions = positions;
  a.types = types;
  a.word = word;
  a.position = position;
  a.type = type;
  run_rows(pool, table.embed_norm_forward, a, rows);
}

template <typename Activation>
void add_norm_forward(const KernelTable<Activation>& table, ThreadPool& pool, const Activation* x,
                      const Residual& residual, std::int64_t rows, std::int64_t H, LayerNorm norm,
                      Dropout dropout, RowIdentity identity, float* sum, float* stats,
                      Activation* y) {
  NormForward<Activation> a = norm_forward(H, norm, dropout, identity, sum, stats, y);
  a.x = x;
  a.residual = residual;
  run_rows(pool, table.add_norm_forward, a, rows);
}

template <typename Activation>
void dropout_backward(const KernelTable<Activation>& table, ThreadPool& pool, float* d_stream,
                      const Activation* dy_branch, std::int64_t rows, std::int64_t H,
                      Dropout dropout, RowIdentity identity) {
  if (dropout.threshold == 0 && dy_branch == nullptr) return;
  auto a = row_arguments<NormBackward<Activation>>(H, dropout, identity);
  a.d_stream = d_stream;
  a.dy_branch = dy_branch;
  run_rows(pool, table.dropout_backward, a, rows);
}

template <typename Activation>
void gelu_forward(const KernelTable<Activation>& table, ThreadPool& pool, const Activation* x,
                  std::int64_t count, Activation* y) {
  pool.for_ranges(count, kTaskElements, [&](std::int64_t begin, std::int64_t end) {
    table.gelu_forward(x + begin, end - begin, y + begin);
  });
}

template <typename Activation>
void gelu_backward(const KernelTable<Activation>& table, ThreadPool& pool, const Activation* x,
                   const Activation* dy, std::int64_t count, Activation* dx) {
  pool.for_ranges(count, kTaskElements, [&](std::int64_t begin, std::int64_t end) {
    table.gelu_backward(x + begin, dy + begin, end - begin, dx + begin);
  });
}

// Arguments of the forward kernels of heads.
template <typename Activation>
ActivationDropout<Activation> activation_forward(const Activation* x, std::int64_t H,
                                                 const Dropout& dropout, RowIdentity identity,
                                                 Activation* activation, Activation* y) {
  auto a = row_arguments<ActivationDropout<Activation>>(H, dropout, identity);
  a.x = x;
  a.activation_out = activation;
  a.out = y;
  return a;
}
// Of the backward kernels.
template <typename Activation>
ActivationDropout<Activation> activation_backward(const Activation* activation,
                                                  const Activation* dy, std::int64_t H,
                                                  const Dropout& dropout, RowIdentity identity,
                                                  Activation* dx) {
  auto a = row_arguments<ActivationDropout<Activation>>(H, dropout, identity);
  a.dy = dy;
  a.activation = activation;
  a.out = dx;
  return a;
}

template <typename Activation>
void tanh_dropout_forward(const KernelTable<Activation>& table, ThreadPool& pool,
                          const Activation* x, std::int64_t rows, std::int64_t H, Dropout dropout,
                          RowIdentity identity, Activation* activation, Activation* y) {
  run_rows(pool, table.tanh_dropout_forward,
           activation_forward(x, H, dropout, identity, activation, y), rows);
}

template <typename Activation>
void tanh_dropout_backward(const KernelTable<Activation>& table, ThreadPool& pool,
                           const Activation* activation, const Activation* dy, std::int64_t rows,
                           std::int64_t H, Dropout dropout, RowIdentity identity, Activation* dx) {
  run_rows(pool, table.tanh_dropout_backward,
           activation_backward(activation, dy, H, dropout, identity, dx), rows);
}

template <typename Activation>
void relu_dropout_forward(const KernelTable<Activation>& table, ThreadPool& pool,
                          const Activation* x, std::int64_t rows, std::int64_t H, Dropout dropout,
                          RowIdentity identity, Activation* activation, Activation* y) {
  run_rows(pool, table.relu_dropout_forward,
           activation_forward(x, H, dropout, identity, activation, y), rows);
}

template <typename Activation>
void relu_dropout_backward(const KernelTable<Activation>& table, ThreadPool& pool,
                           const Activation* activation, const Activation* dy, std::int64_t rows,
                           std::int64_t H, Dropout dropout, RowIdentity identity, Activation* dx) {
  run_rows(pool, table.relu_dropout_backward,
           activation_backward(activation, dy, H, dropout, identity, dx), rows);
}

template <typename Activation>
void dropout_forward(const KernelTable<Activation>& table, ThreadPool& pool, const Activation* x,
                     std::int64_t rows, std::int64_t H, Dropout dropout, RowIdentity identity,
                     Activation* y) {
  run_rows(pool, table.dropout_forward,
           activation_forward<Activation>(x, H, dropout, identity, nullptr, y), rows);
}

template <typename Activation>
void softmax_cross_entropy(const KernelTable<Activation>& table, const Activation* logits,
                           const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
                           float scale, float smoothing, float* losses, Activation* d_logits) {
  table.softmax_cross_entropy(logits, labels, rows, classes, scale, smoothing, losses, d_logits);
}

template <typename Activation>
void squared_error(const KernelTable<Activation>& table, const Activation* logits,
                   const float* values, std::int64_t rows, float scale, float* losses,
                   Activation* d_logits) {
  table.squared_error(logits, values, rows, scale, losses, d_logits);
}

template <typename Activation>
void span_cross_entropy(const KernelTable<Activation>& table, const AnswerSpans& spans,
                        const Activation* logits, float scale, float* losses,
                        Activation* d_logits) {
  for (std::int64_t b = 0; b < spans.B; ++b) {
    const std::int32_t length = spans.lengths[b];
    TW_CHECK(spans.first[b] >= 0 && spans.first[b] < length && spans.last[b] >= 0 &&
                 spans.last[b] < length,
             "answer from token {} to {} in an example of {} tokens", spans.first[b], spans.last[b],
             length);
  }
  table.span_cross_entropy(spans, logits, scale, losses, d_logits);
}

}  // namespace

template <typename Activation>
void fill_row_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table) {
  ops.embed_norm_forward.template bind<embed_norm_forward<Activation>>(table);
  ops.add_norm_forward.template bind<add_norm_forward<Activation>>(table);
  ops.dropout_backward.template bind<dropout_backward<Activation>>(table);
  ops.gelu_forward.template bind<gelu_forward<Activation>>(table);
  ops.gelu_backward.template bind<gelu_backward<Activation>>(table);
  ops.tanh_dropout_forward.template bind<tanh_dropout_forward<Activation>>(table);
  ops.tanh_dropout_backward.template bind<tanh_dropout_backward<Activation>>(table);
  ops.relu_dropout_forward.template bind<relu_dropout_forward<Activation>>(table);
  ops.relu_dropout_backward.template bind<relu_dropout_backward<Activation>>(table);
  ops.dropout_forward.template bind<dropout_forward<Activation>>(table);
  ops.softmax_cross_entropy.template bind<softmax_cross_entropy<Activation>>(table);
  ops.squared_error.template bind<squared_error<Activation>>(table);
  ops.span_cross_entropy.template bind<span_cross_entropy<Activation>>(table);
}
template void fill_row_launchers<float>(Ops<float>&, const KernelTable<float>&);
template void fill_row_launchers<bf16>(Ops<bf16>&, const KernelTable<bf16>&);

}  // namespace tilewright::kernels
