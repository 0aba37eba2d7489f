#include "worker/bench/gemm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/base/result.h"
#include "worker/bench/operands.h"
#include "worker/bench/statistics.h"
#include "worker/kernels/gemm/onednn.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/runtime/memory.h"

namespace tilewright::bench {
namespace {

using kernels::Ops;
using kernels::ThreadPool;
using runtime::bf16;
using runtime::Buffer;

// One linear layer on one backend with its operands.
template <typename Activation>
class LinearLayer {
 public:
  LinearLayer(const Ops<Activation>& ops, const GemmShape& shape, std::int64_t shards, int threads)
      : ops_(ops),
        shape_(shape),
        w_(random_buffer<float>(shape.n * shape.k, 1)),
        bias_(random_buffer<float>(shape.n, 2)),
        x_(random_buffer<Activation>(shape.rows * shape.k, 3)),
        dy_(random_buffer<Activation>(shape.rows * shape.n, 4)),
        forward_(ops.packed_weight_size(shape.n, shape.k)),
        backward_(ops.packed_weight_size(shape.n, shape.k)),
        y_(static_cast<std::size_t>(shape.rows * shape.n)),
        dx_(static_cast<std::size_t>(shape.rows * shape.k)),
        dw_(static_cast<std::size_t>(shape.n * shape.k)),
        dbias_(static_cast<std::size_t>(shape.n)),
        scratch_(std::max(
            ops.linear_forward_scratch(shape.k, shape.n, threads),
            ops.linear_backward_weight_scratch(shape.rows, shards, shape.k, shape.n, threads))) {
    for (std::int64_t i = 0; i <= shards; ++i) {
      shards_.push_back(static_cast<std::int32_t>(shape.rows * i / shards));
    }
    ops.pack_weight(w_.data(), shape.n, shape.k, 0, shape.n, forward_.data(), backward_.data());
  }

  // 0: forward, 1: dX, 2: dW.
  void run(int operation, ThreadPool& pool) {
    const auto& [rows, k, n] = shape_;
    if (operation == 0) {
      ops_.linear_forward(pool, x_.data(), forward_.data(), bias_.data(), rows, k, n, y_.data(),
                          scratch_.data());
    } else if (operation == 1) {
      ops_.linear_backward_input(pool, dy_.data(), backward_.data(), rows, k, n, dx_.data(),
                                 scratch_.data());
    } else {
      ops_.linear_backward_weight(pool, x_.data(), dy_.data(), shards_, k, n, dw_.data(),
                                  dbias_.data(), scratch_.data());
    }
  }

 private:
  const Ops<Activation>& ops_;
  GemmShape shape_;
  Buffer<float> w_, bias_;
  Buffer<Activation> x_, dy_, forward_, backward_, y_, dx_;
  Buffer<float> dw_, dbias_;
  Buffer<std::byte> scratch_;
  std::vector<std::int32_t> shards_;
};

template <typename Activation>
void run(const GemmBenchOptions& options, GemmBench& bench) {
  const bool has_onednn = kernels::limit_onednn_isa(options.isa, options.precision);
  const Ops<Activation> native_ops = kernels::make_ops<Activation>(options.isa);
  const Ops<Activation> onednn_ops =
      kernels::make_ops<Activation>(options.isa, kernels::GemmBackend::kOneDnn);
  bench.kernel = native_ops.linear_forward.name;
  for (const int threads : options.threads) {
    ThreadPool pool(threads);
    for (const GemmShape& shape : options.shapes) {
      LinearLayer<Activation> native_layer(native_ops, shape, options.shards, threads);
      LinearLayer<Activation> onednn_layer(onednn_ops, shape, options.shards, threads);
      kernels::PeakMeter peak(options.isa, options.precision, pool);
      for (int operation = 0; operation < 3; ++operation) {
        std::vector<double> native_times;
        std::vector<double> onednn_times;
        for (int i = 0; i < options.repetitions; ++i) {
          native_layer.run(operation, pool);
          native_times.push_back(seconds([&] { native_layer.run(operation, pool); }));
          if (!has_onednn) continue;
          onednn_layer.run(operation, pool);
          onednn_times.push_back(seconds([&] { onednn_layer.run(operation, pool); }));
        }
        const double work = 2e-9 * static_cast<double>(shape.rows) * static_cast<double>(shape.k) *
                            static_cast<double>(shape.n);
        constexpr const char* kOperations[] = {"forward", "dX", "dW"};
        GemmBenchRow row;
        row.shape = shape;
        row.operation = kOperations[operation];
        row.threads = threads;
        row.gflops = work / median(native_times);
        row.onednn_gflops = has_onednn ? work / median(onednn_times) : 0;
        row.peak_gflops = peak.peak_for(row.gflops);
        bench.rows.push_back(row);
      }
    }
  }
}

}  // namespace

GemmShape parse_gemm_shape(const std::string& text) {
  constexpr std::int64_t kMost = 65536;
  GemmShape shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::int64_t* const value : {&shape.rows, &shape.k, &shape.n}) {
    const auto [after, error] = std::from_chars(at, end, *value);
    const bool last = value == &shape.n;
    const bool good = error == std::errc{} && *value >= 1 && *value <= kMost &&
                      (last ? after == end : after != end && *after == 'x');
    if (!good) {
      throw Failure(
          ExitCode::kUsage,
          fmt::format("--shapes: found \"{}\", expected ROWSxKxN, each from 1 to {}", text, kMost));
    }
    at = after + (last ? 0 : 1);
  }
  return shape;
}

GemmBench bench_gemm(const GemmBenchOptions& options) {
  GemmBench bench;
  bench.cpu = runtime::detect_cpu().model;
  bench.isa = runtime::name(options.isa);
  const bool is_bf16 = options.precision == runtime::Precision::kBf16;
  bench.type = is_bf16 ? "bf16" : "float";
  if (is_bf16) {
    run<bf16>(options, bench);
  } else {
    run<float>(options, bench);
  }
  return bench;
}

std::string shapes_to_json(const std::vector<GemmShape>& shapes) {
  nlohmann::json all = nlohmann::json::array();
  for (const GemmShape& shape : shapes) {
    all.push_back({{"rows", shape.rows}, {"k", shape.k}, {"n", shape.n}});
  }
  return all.dump();
}

std::string GemmBench::to_json() const {
  nlohmann::json entries = nlohmann::json::array();
  for (const GemmBenchRow& row : rows) {
    nlohmann::json entry = {{"rows", row.shape.rows},
                            {"k", row.shape.k},
                            {"n", row.shape.n},
                            {"operation", row.operation},
                            {"threads", row.threads},
                            {"gflops", row.gflops},
                            {"peak_gflops", row.peak_gflops},
                            {"share_of_peak", row.gflops / row.peak_gflops}};
    if (row.onednn_gflops > 0) entry["onednn_gflops"] = row.onednn_gflops;
    entries.push_back(std::move(entry));
  }
  const nlohmann::json all = {
      {"cpu", cpu}, {"isa", isa}, {"type", type}, {"kernel", kernel}, {"gemm", std::move(entries)}};
  return all.dump(2);
}

std::string GemmBench::to_text() const {
  std::string out = fmt::format("{}, {}, {}: {}\n", cpu, isa, type, kernel);
  out += fmt::format("{:>16}  {:<8}{:>8}{:>10}{:>12}{:>10}{:>8}\n", "rows x K x N", "", "threads",
                     "GFLOP/s", "of peak", "oneDNN", "ratio");
  for (const GemmBenchRow& row : rows) {
    const std::string shape = fmt::format("{}x{}x{}", row.shape.rows, row.shape.k, row.shape.n);
    out += fmt::format("{:>16}  {:<8}{:>8}{:>10.0f}{:>10.0f} %", shape, row.operation, row.threads,
                       row.gflops, 100 * row.gflops / row.peak_gflops);
    out += row.onednn_gflops > 0 ? fmt::format("{:>10.0f}{:>8.2f}\n", row.onednn_gflops,
                                               row.gflops / row.onednn_gflops)
                                 : fmt::format("{:>10}{:>8}\n", "-", "-");
  }
  return out;
}

}  // namespace tilewright::bench
