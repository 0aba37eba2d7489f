#include "worker/bench/recorder.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/clock.h"

namespace tilewright::bench {

using kernels::Dropout;
using kernels::LayerNorm;
using kernels::RowIdentity;
using kernels::Shards;
using kernels::ThreadPool;

// The table to which a timed Kernel is bound.
template <typename Result, typename... Arguments>
struct TimedKernel<Result(Arguments...)> {
  using WorkOf = Work (*)(Arguments...);

  const char* name = "";  // read by Kernel::bind
  kernels::Kernel<Result(Arguments...)> kernel;
  WorkOf work_of = nullptr;
  Recorder* recorder = nullptr;
  std::size_t number = 0;

  static Result run(const TimedKernel& timed, Arguments... arguments) {
    const auto begin = Recorder::Clock::now();
    const auto record = [&] {
      timed.recorder->add(timed.number, timed.work_of(arguments...),
                          Recorder::Clock::now() - begin);
    };
    if constexpr (std::is_void_v<Result>) {
      timed.kernel(arguments...);
      record();
    } else {
      const Result result = timed.kernel(arguments...);
      record();
      return result;
    }
  }
};

namespace {

Work linear_work(std::int64_t rows, std::int64_t k, std::int64_t n) {
  return {.rows = rows,
          .k = k,
          .n = n,
          .operations = 2.0 * static_cast<double>(rows) * static_cast<double>(k * n)};
}

Work memory_work(std::int64_t elements, std::size_t bytes_each) {
  return {.bytes = static_cast<double>(elements) * static_cast<double>(bytes_each)};
}

// `products`: of S x S x D for each head, over the tokens that are not padding. Those that backward
// computes again are not counted, as in nn/flops.h.
template <typename Activation>
Work attention_work(const kernels::AttentionForward<Activation>& a, double products) {
  double squares = 0;
  for (std::int64_t b = 0; b < a.B; ++b) {
    const double length =
        a.attended != nullptr ? a.attended[b] : a.cu_seqlens[b + 1] - a.cu_seqlens[b];
    squares += length * length;
  }
  return {.operations = 2 * products * squares * static_cast<double>(a.heads * a.head_size)};
}

}  // namespace

std::size_t Recorder::add_kernel(std::string name, bool in_tasks) {
  kernels_.push_back({std::move(name), in_tasks ? std::make_unique<TaskCalls>() : nullptr});
  return kernels_.size() - 1;
}

void Recorder::add(std::size_t kernel, const Work& work, Clock::duration time) {
  if (TaskCalls* const tasks = kernels_[kernel].tasks.get()) {
    constexpr auto kOrder = std::memory_order_relaxed;  // read after the pool has finished
    tasks->count.fetch_add(1, kOrder);
    tasks->nanoseconds.fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count(),
                                 kOrder);
    tasks->bytes.fetch_add(static_cast<std::int64_t>(work.bytes), kOrder);
    return;
  }
  for (Calls& calls : calls_) {
    if (calls.kernel == kernel && calls.work.rows == work.rows && calls.work.k == work.k &&
        calls.work.n == work.n) {
      calls.work.operations += work.operations;
      calls.work.bytes += work.bytes;
      calls.time += time;
      ++calls.count;
      return;
    }
  }
  calls_.push_back({kernel, work, 1, time});
}

void Recorder::clear() {
  calls_.clear();
  for (const KernelInfo& kernel : kernels_) {
    if (kernel.tasks == nullptr) continue;
    kernel.tasks->count = 0;
    kernel.tasks->nanoseconds = 0;
    kernel.tasks->bytes = 0;
  }
}

std::vector<KernelTime> Recorder::times(int steps, int threads) const {
  std::vector<KernelTime> times;
  for (const Calls& calls : calls_) {
    const Work& work = calls.work;
    times.push_back(
        {.kernel = kernels_[calls.kernel].name,
         .shape = work.rows > 0 ? fmt::format("{} x {} x {}", work.rows, work.k, work.n) : "",
         .calls = static_cast<double>(calls.count) / steps,
         .seconds = in_seconds(calls.time) / steps,
         .operations = work.operations / steps,
         .bytes = work.bytes / steps});
  }
  for (const KernelInfo& kernel : kernels_) {
    if (kernel.tasks == nullptr || kernel.tasks->count == 0) continue;
    times.push_back(
        {.kernel = kernel.name,
         .calls = static_cast<double>(kernel.tasks->count) / steps,
         .seconds = 1e-9 * static_cast<double>(kernel.tasks->nanoseconds) / threads / steps,
         .bytes = static_cast<double>(kernel.tasks->bytes) / steps});
  }
  return times;
}

template <typename Activation>
template <typename Signature>
void ProfiledOps<Activation>::time(kernels::Kernel<Signature>& kernel, const char* name,
                                   typename TimedKernel<Signature>::WorkOf work_of, bool in_tasks) {
  using Timed = TimedKernel<Signature>;
  const auto timed =
      std::make_shared<const Timed>(Timed{.name = kernel.name,
                                          .kernel = kernel,
                                          .work_of = work_of,
                                          .recorder = &recorder_,
                                          .number = recorder_.add_kernel(name, in_tasks)});
  kernel.template bind<&Timed::run>(*timed);
  timed_.push_back(timed);
}

template <typename Activation>
ProfiledOps<Activation>::ProfiledOps(const kernels::Ops<Activation>& plain,
                                     const kernels::ParameterOps& plain_parameters,
                                     Recorder& recorder)
    : ops_(plain), parameter_ops_(plain_parameters), recorder_(recorder) {
  using A = Activation;
  constexpr std::size_t kA = sizeof(Activation);
  // A new kernel must be timed below; five kernels only return sizes.
  static_assert(sizeof(ops_) == (20 + 5) * sizeof(ops_.gelu_forward));
  static_assert(sizeof(parameter_ops_) == 4 * sizeof(ops_.gelu_forward));

  time(ops_.linear_forward, "linear forward",
       [](ThreadPool&, const A*, const A*, const float*, std::int64_t rows, std::int64_t k,
          std::int64_t n, A*, std::byte*) { return linear_work(rows, k, n); });
  time(ops_.linear_backward_input, "linear dX",
       [](ThreadPool&, const A*, const A*, std::int64_t rows, std::int64_t k, std::int64_t n, A*,
          std::byte*) { return linear_work(rows, k, n); });
  time(ops_.linear_backward_weight, "linear dW",
       [](ThreadPool&, const A*, const A*, Shards shards, std::int64_t k, std::int64_t n, float*,
          float*, std::byte*) { return linear_work(shards.back() - shards.front(), k, n); });
  time(ops_.attention_forward, "attention_forward",
       [](ThreadPool&, const kernels::AttentionForward<A>& a, std::byte*) {
         return attention_work(a, 2);
       });
  time(ops_.attention_backward, "attention_backward",
       [](ThreadPool&, const kernels::AttentionBackward<A>& a, std::byte*) {
         return attention_work(a.forward, 4);
       });

  // The bytes below are the operands in order: fp32 4, activations kA.
  time(ops_.embed_norm_forward, "embed_norm_forward",
       [](ThreadPool&, const std::int32_t*, const std::int32_t*, const std::int32_t*, const float*,
          const float*, const float*, std::int64_t rows, std::int64_t H, LayerNorm, Dropout,
          RowIdentity, float*, float*, float*,
          A* y) { return memory_work(rows * H, 4 + 4 + 4 + 4 + (y != nullptr ? kA : 0)); });
  time(ops_.add_norm_forward, "add_norm_forward",
       [](ThreadPool&, const A*, kernels::Residual, std::int64_t rows, std::int64_t H, LayerNorm,
          Dropout, RowIdentity, float*, float*,
          A*) { return memory_work(rows * H, kA + 4 + 4 + kA); });
  time(ops_.add_norm_backward, "add_norm_backward",
       [](ThreadPool&, float*, const A* dy_branch, const float*, const float*, Shards shards,
          std::int64_t H, LayerNorm, Dropout, RowIdentity, A* dx, float*, float*, std::byte*) {
         return memory_work((shards.back() - shards.front()) * H,
                            4 + 4 + (dy_branch != nullptr ? kA : 0) + 4 + (dx != nullptr ? kA : 0));
       });
  time(ops_.dropout_backward, "dropout_backward",
       [](ThreadPool&, float*, const A* dy_branch, std::int64_t rows, std::int64_t H, Dropout,
          RowIdentity) { return memory_work(rows * H, 4 + 4 + (dy_branch != nullptr ? kA : 0)); });
  time(ops_.gelu_forward, "gelu_forward",
       [](ThreadPool&, const A*, std::int64_t count, A*) { return memory_work(count, kA + kA); });
  time(ops_.gelu_backward, "gelu_backward",
       [](ThreadPool&, const A*, const A*, std::int64_t count, A*) {
         return memory_work(count, kA + kA + kA);
       });

  constexpr auto kActivationForward = [](ThreadPool&, const A*, std::int64_t rows, std::int64_t H,
                                         Dropout, RowIdentity, A*,
                                         A*) { return memory_work(rows * H, kA + kA + kA); };
  constexpr auto kActivationBackward = [](ThreadPool&, const A*, const A*, std::int64_t rows,
                                          std::int64_t H, Dropout, RowIdentity,
                                          A*) { return memory_work(rows * H, kA + kA + kA); };
  time(ops_.tanh_dropout_forward, "tanh_dropout_forward", kActivationForward);
  time(ops_.tanh_dropout_backward, "tanh_dropout_backward", kActivationBackward);
  time(ops_.relu_dropout_forward, "relu_dropout_forward", kActivationForward);
  time(ops_.relu_dropout_backward, "relu_dropout_backward", kActivationBackward);
  time(ops_.dropout_forward, "dropout_forward",
       [](ThreadPool&, const A*, std::int64_t rows, std::int64_t H, Dropout, RowIdentity, A*) {
         return memory_work(rows * H, kA + kA);
       });
  time(ops_.softmax_cross_entropy, "softmax_cross_entropy",
       [](const A*, const std::int32_t*, std::int64_t rows, std::int64_t classes, float, float,
          float*, A*) { return memory_work(rows * classes, kA + kA); });
  time(ops_.squared_error, "squared_error",
       [](const A*, const float*, std::int64_t rows, float, float*, A*) {
         return memory_work(rows, kA + kA);
       });
  time(ops_.span_cross_entropy, "span_cross_entropy",
       [](const kernels::AnswerSpans& spans, const A*, float, float*, A*) {
         return memory_work(std::int64_t{2} * spans.cu_seqlens[spans.B], kA + kA);
       });
  // Without the fp32 rows, which AdamW has just written and which are in the cache.
  time(
      ops_.pack_weight, "pack_weight",
      [](const float*, std::int64_t, std::int64_t k, std::int64_t row_begin, std::int64_t row_end,
         A*, A*) { return memory_work((row_end - row_begin) * k, kA + kA); },
      true);

  time(parameter_ops_.embedding_backward, "embedding_backward",
       [](ThreadPool&, const kernels::EmbeddingBackward& e) {
         return memory_work((e.row_offsets[e.R] - e.row_offsets[0] + e.R) * e.H, 4);
       });
  time(
      parameter_ops_.adamw, "adamw",
      [](const kernels::AdamW&, std::int64_t count, const float* gradient, float*, float*, float*) {
        return memory_work(count, gradient != nullptr ? 28 : 24);
      },
      true);
  time(
      parameter_ops_.sum_of_squares, "sum_of_squares",
      [](const float*, std::int64_t count) { return memory_work(count, 4); }, true);
  time(
      parameter_ops_.copy, "copy",
      [](const float*, std::int64_t count, float*) { return memory_work(count, 8); }, true);
}

template class ProfiledOps<float>;
template class ProfiledOps<runtime::bf16>;

}  // namespace tilewright::bench
