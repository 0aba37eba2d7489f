// Kernels whose rows or elements do not depend on each other: threads take ranges of them.
#include "common/base/check.h"
#include "worker/kernels/drivers.h"

namespace tilewright::kernels {
namespace {

// About the size of a task, in elements: large beside the cost of handing it out (a microsecond),
// small beside a step's share of a thread.
constexpr std::int64_t kTaskElements = 16384;

std::int64_t rows_per_task(std::int64_t H) { return H >= kTaskElements ? 1 : kTaskElements / H; }

void check_width(std::int64_t H) {
  TW_CHECK(H > 0 && H <= kMaxHidden, "rows of {} elements: 1 to {} are supported", H, kMaxHidden);
}

template <typename Arguments>
void run_rows(ThreadPool& pool, void (*loop)(const Arguments&, Range), const Arguments& arguments,
              std::int64_t rows) {
  check_width(arguments.H);
  pool.for_ranges(rows, rows_per_task(arguments.H), [&](std::int64_t begin, std::int64_t end) {
    loop(arguments, {begin, end});
  });
}

// What the loops over rows with dropout have in common.
template <typename Arguments>
Arguments row_arguments(std::int64_t H, const Dropout& dropout, RowIdentity identity) {
  Arguments a;
  a.H = H;
  a.dropout = make_dropout_stream(dropout);
  a.identity = identity;
  return a;
}

// What both norms have in common, whatever they sum.
template <typename T>
NormForward<T> norm_forward(std::int64_t H, LayerNorm norm, const Dropout& dropout,
                            RowIdentity identity, float* sum, float* stats, float* y32, T* y) {
  auto a = row_arguments<NormForward<T>>(H, dropout, identity);
  a.norm = norm;
  a.sum = sum;
  a.stats = stats;
  a.y32 = y32;
  a.y = y;
  return a;
}

template <typename T, Isa kIsa>
void embed_norm_forward(ThreadPool& pool, const std::int32_t* ids, const std::int32_t* positions,
                        const std::int32_t* types, const float* word, const float* position,
                        const float* type, std::int64_t rows, std::int64_t H, LayerNorm norm,
                        Dropout dropout, RowIdentity identity, float* sum, float* stats, float* y32,
                        T* y) {
  NormForward<T> a = norm_forward(H, norm, dropout, identity, sum, stats, y32, y);
  a.ids = ids;
  a.positions = positions;
  a.types = types;
  a.word = word;
  a.position = position;
  a.type = type;
  run_rows(pool, loops<T>(kIsa).embed_norm_forward, a, rows);
}

template <typename T, Isa kIsa>
void add_norm_forward(ThreadPool& pool, const T* x, const float* residual, std::int64_t rows,
                      std::int64_t H, LayerNorm norm, Dropout dropout, RowIdentity identity,
                      float* sum, float* stats, float* y32, T* y) {
  NormForward<T> a = norm_forward(H, norm, dropout, identity, sum, stats, y32, y);
  a.x = x;
  a.residual = residual;
  run_rows(pool, loops<T>(kIsa).add_norm_forward, a, rows);
}

template <typename T, Isa kIsa>
void add_norm_backward(ThreadPool& pool, float* dy32, const T* dy_branch, const float* sum,
                       const float* stats, std::int64_t rows, std::int64_t H, LayerNorm norm,
                       Dropout dropout, RowIdentity identity, float* d_sum, T* dx) {
  auto a = row_arguments<NormBackward<T>>(H, dropout, identity);
  a.dy32 = dy32;
  a.dy_branch = dy_branch;
  a.sum = sum;
  a.stats = stats;
  a.norm = norm;
  a.d_sum = d_sum;
  a.dx = dx;
  run_rows(pool, loops<T>(kIsa).add_norm_backward, a, rows);
}

template <typename T, Isa kIsa>
void dropout_backward(ThreadPool& pool, float* dy32, const T* dy_branch, std::int64_t rows,
                      std::int64_t H, Dropout dropout, RowIdentity identity) {
  if (dropout.threshold == 0 && dy_branch == nullptr) return;
  auto a = row_arguments<NormBackward<T>>(H, dropout, identity);
  a.dy32 = dy32;
  a.dy_branch = dy_branch;
  run_rows(pool, loops<T>(kIsa).dropout_backward, a, rows);
}

template <typename T, Isa kIsa>
void gelu_forward(ThreadPool& pool, const T* x, std::int64_t count, T* y) {
  pool.for_ranges(count, kTaskElements, [&](std::int64_t begin, std::int64_t end) {
    loops<T>(kIsa).gelu_forward(x + begin, end - begin, y + begin);
  });
}

template <typename T, Isa kIsa>
void gelu_backward(ThreadPool& pool, const T* x, const T* dy, std::int64_t count, T* dx) {
  pool.for_ranges(count, kTaskElements, [&](std::int64_t begin, std::int64_t end) {
    loops<T>(kIsa).gelu_backward(x + begin, dy + begin, end - begin, dx + begin);
  });
}

template <typename T, Isa kIsa>
void tanh_dropout_forward(ThreadPool& pool, const T* x, std::int64_t rows, std::int64_t H,
                          Dropout dropout, RowIdentity identity, T* activation, T* y) {
  auto a = row_arguments<TanhDropout<T>>(H, dropout, identity);
  a.x = x;
  a.activation_out = activation;
  a.out = y;
  run_rows(pool, loops<T>(kIsa).tanh_dropout_forward, a, rows);
}

template <typename T, Isa kIsa>
void tanh_dropout_backward(ThreadPool& pool, const T* activation, const T* dy, std::int64_t rows,
                           std::int64_t H, Dropout dropout, RowIdentity identity, T* dx) {
  auto a = row_arguments<TanhDropout<T>>(H, dropout, identity);
  a.dy = dy;
  a.activation = activation;
  a.out = dx;
  run_rows(pool, loops<T>(kIsa).tanh_dropout_backward, a, rows);
}

}  // namespace

template <typename T, Isa kIsa>
void fill_row_drivers(Ops<T>& ops) {
  const char* name = loops_name(kIsa);
  ops.embed_norm_forward = {embed_norm_forward<T, kIsa>, name};
  ops.add_norm_forward = {add_norm_forward<T, kIsa>, name};
  ops.add_norm_backward = {add_norm_backward<T, kIsa>, name};
  ops.dropout_backward = {dropout_backward<T, kIsa>, name};
  ops.gelu_forward = {gelu_forward<T, kIsa>, name};
  ops.gelu_backward = {gelu_backward<T, kIsa>, name};
  ops.tanh_dropout_forward = {tanh_dropout_forward<T, kIsa>, name};
  ops.tanh_dropout_backward = {tanh_dropout_backward<T, kIsa>, name};
  ops.softmax_cross_entropy = {loops<T>(kIsa).softmax_cross_entropy, name};
}

#define TW_INSTANTIATE(T, isa) template void fill_row_drivers<T, isa>(Ops<T>&);
TW_FOR_EACH_TABLE(TW_INSTANTIATE)

}  // namespace tilewright::kernels
