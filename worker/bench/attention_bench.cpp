#include "worker/bench/attention_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "worker/bench/operands.h"
#include "worker/bench/statistics.h"
#include "worker/kernels/gemm/peak.h"

namespace tilewright::bench {
namespace {

using runtime::Buffer;
using runtime::ThreadPool;

// Attention of one batch with its operands.
template <typename Activation>
class Attention {
 public:
  Attention(const kernels::Ops<Activation>& ops, const AttentionShape& shape, double dropout,
            int threads)
      : ops_(ops), cu_seqlens_{0}, example_(shape.lengths.size()) {
    for (const std::int32_t length : shape.lengths) {
      cu_seqlens_.push_back(cu_seqlens_.back() + length);
    }
    std::iota(example_.begin(), example_.end(), 0);
    const std::int64_t tokens = cu_seqlens_.back();
    const std::int64_t width = shape.heads * shape.head_size;
    qkv_ = random_buffer<Activation>(3 * tokens * width, 1);
    d_context_ = random_buffer<Activation>(tokens * width, 2);
    d_qkv_ = Buffer<Activation>(static_cast<std::size_t>(3 * tokens * width));
    context_ = Buffer<Activation>(static_cast<std::size_t>(tokens * width));
    log_sum_exp_ = Buffer<float>(static_cast<std::size_t>(tokens * shape.heads));
    kernels::AttentionForward<Activation>& a = arguments_.forward;
    a.qkv = qkv_.data();
    a.cu_seqlens = cu_seqlens_.data();
    a.example = example_.data();
    a.B = static_cast<std::int64_t>(shape.lengths.size());
    a.heads = shape.heads;
    a.head_size = shape.head_size;
    a.max_seqlen = *std::max_element(shape.lengths.begin(), shape.lengths.end());
    a.dropout = {.seed = 1, .threshold = static_cast<std::uint32_t>(std::lround(dropout * 65536))};
    a.dropout.scale = 65536.0f / static_cast<float>(65536 - a.dropout.threshold);
    a.context = context_.data();
    a.log_sum_exp = log_sum_exp_.data();
    arguments_.d_context = d_context_.data();
    arguments_.d_qkv = d_qkv_.data();
    scratch_ = Buffer<std::byte>(
        ops.attention_scratch(a.max_seqlen, shape.heads, shape.head_size, threads));
  }

  void forward(ThreadPool& pool) {
    ops_.attention_forward(pool, arguments_.forward, scratch_.data());
  }
  void backward(ThreadPool& pool) { ops_.attention_backward(pool, arguments_, scratch_.data()); }

 private:
  const kernels::Ops<Activation>& ops_;
  std::vector<std::int32_t> cu_seqlens_;
  std::vector<std::int32_t> example_;
  Buffer<Activation> qkv_, d_context_, d_qkv_, context_;
  Buffer<float> log_sum_exp_;
  Buffer<std::byte> scratch_;
  kernels::AttentionBackward<Activation> arguments_;
};

// Operations of one product over all heads.
double product_gflop(const AttentionShape& shape) {
  double squares = 0;
  for (const std::int32_t length : shape.lengths) squares += 1e-9 * length * length;
  return 2 * squares * static_cast<double>(shape.heads * shape.head_size);
}

template <typename Activation>
void run(const AttentionBenchOptions& options, AttentionBench& bench) {
  const kernels::Ops<Activation> ops = kernels::make_ops<Activation>(options.isa);
  bench.kernel = ops.attention_forward.name;
  for (const int threads : options.threads) {
    ThreadPool pool(threads);
    kernels::PeakMeter peak(options.isa, options.precision, pool);
    for (const AttentionShape& shape : options.shapes) {
      Attention<Activation> attention(ops, shape, options.dropout, threads);
      attention.forward(pool);
      attention.backward(pool);
      std::vector<double> forward;
      std::vector<double> backward;
      std::vector<double> both;
      for (int i = 0; i < options.repetitions; ++i) {
        forward.push_back(seconds([&] { attention.forward(pool); }));
        backward.push_back(seconds([&] { attention.backward(pool); }));
        both.push_back(forward.back() + backward.back());
      }
      const double product = product_gflop(shape);
      AttentionBenchRow row;
      row.shape = shape;
      row.threads = threads;
      row.forward_gflops = 2 * product / median(forward);
      row.backward_gflops = 5 * product / median(backward);
      row.gflops = 7 * product / median(both);
      row.peak_gflops = peak.peak_for(row.gflops);
      bench.rows.push_back(row);
    }
  }
}

struct Lengths {
  std::int64_t tokens = 0;
  double mean = 0;
  explicit Lengths(const AttentionShape& shape)
      : tokens(std::accumulate(shape.lengths.begin(), shape.lengths.end(), std::int64_t{0})),
        mean(static_cast<double>(tokens) / static_cast<double>(shape.lengths.size())) {}
};

}  // namespace

std::vector<AttentionShape> model_attention_shapes() {
  const auto shape = [](std::size_t examples, std::int32_t tokens, std::int64_t heads,
                        std::int64_t head_size) {
    return AttentionShape{std::vector<std::int32_t>(examples, tokens), heads, head_size};
  };
  return {shape(32, 53, 12, 32),  shape(32, 128, 12, 32), shape(32, 128, 12, 64),
          shape(12, 384, 12, 64), shape(8, 384, 16, 64),  shape(8, 512, 12, 64)};
}

AttentionBench bench_attention(const AttentionBenchOptions& options) {
  AttentionBenchOptions all = options;
  if (all.shapes.empty()) all.shapes = model_attention_shapes();
  AttentionBench bench;
  bench.cpu = runtime::detect_cpu().model;
  bench.isa = runtime::name(all.isa);
  const bool is_bf16 = all.precision == runtime::Precision::kBf16;
  bench.type = is_bf16 ? "bf16" : "float";
  if (is_bf16) {
    run<runtime::bf16>(all, bench);
  } else {
    run<float>(all, bench);
  }
  return bench;
}

std::string shapes_to_json(const std::vector<AttentionShape>& shapes) {
  nlohmann::json all = nlohmann::json::array();
  for (const AttentionShape& shape : shapes) {
    all.push_back({{"examples", shape.lengths.size()},
                   {"tokens", Lengths(shape).tokens},
                   {"heads", shape.heads},
                   {"head_size", shape.head_size}});
  }
  return all.dump();
}

std::string AttentionBench::to_json() const {
  nlohmann::json entries = nlohmann::json::array();
  for (const AttentionBenchRow& row : rows) {
    const Lengths lengths(row.shape);
    entries.push_back({{"examples", row.shape.lengths.size()},
                       {"tokens", lengths.tokens},
                       {"mean_length", lengths.mean},
                       {"heads", row.shape.heads},
                       {"head_size", row.shape.head_size},
                       {"threads", row.threads},
                       {"forward_gflops", row.forward_gflops},
                       {"backward_gflops", row.backward_gflops},
                       {"gflops", row.gflops},
                       {"peak_gflops", row.peak_gflops},
                       {"share_of_peak", row.gflops / row.peak_gflops}});
  }
  const nlohmann::json all = {{"cpu", cpu},
                              {"isa", isa},
                              {"type", type},
                              {"kernel", kernel},
                              {"attention", std::move(entries)}};
  return all.dump(2);
}

std::string AttentionBench::to_text() const {
  std::string out = fmt::format("{}, {}, {}: {}\n", cpu, isa, type, kernel);
  out += fmt::format("{:>16}{:>8}{:>10}{:>8}{:>10}{:>10}{:>10}{:>12}\n", "examples x S", "heads",
                     "head size", "threads", "forward", "backward", "GFLOP/s", "of peak");
  for (const AttentionBenchRow& row : rows) {
    const double peak = row.peak_gflops / 100;
    out +=
        fmt::format("{:>16}{:>8}{:>10}{:>8}{:>8.0f} %{:>8.0f} %{:>10.0f}{:>10.1f} %\n",
                    fmt::format("{} x {:.3g}", row.shape.lengths.size(), Lengths(row.shape).mean),
                    row.shape.heads, row.shape.head_size, row.threads, row.forward_gflops / peak,
                    row.backward_gflops / peak, row.gflops, row.gflops / peak);
  }
  return out;
}

}  // namespace tilewright::bench
