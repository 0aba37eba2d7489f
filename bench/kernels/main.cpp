// tilewright-kernel-bench: times every kernel except linear layers (`tilewright-worker bench gemm`)
// on the shapes of two models, with one and two threads, for each instruction set of this CPU, and
// relates it to the memcpy bandwidth or the peak measured at the same time. It is built if Google
// Benchmark is installed (libbenchmark-dev).
//
//   nice -n -20 tilewright-kernel-bench --benchmark_min_time=0.02 --benchmark_repetitions=7
//     --benchmark_report_aggregates_only=true --benchmark_out=run.json
//   python3 bench/kernels/table.py run.json $(python3 bench/support.py kernels)
//
// GB/s is the minimum number of bytes read and written, per second; of_memcpy its share of the
// memcpy bandwidth with the same threads and bytes. It can exceed 1: memcpy reads its target's
// lines before it overwrites them, which an in-place update needs anyway. Attention has the GFLOP/s
// of its products (2 forward, 5 backward) and of_peak. Kernels of a few microseconds measure the
// cost of dispatching work.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/kernels/cases.h"
#include "worker/kernels/gemm/peak.h"

namespace tilewright::bench {
namespace {

constexpr Model kModels[] = {{"minilm", 384, 12, 1536, 32, 53},
                             {"bert-base", 768, 12, 3072, 12, 384}};

// Bytes per second that memcpy reads and writes with all threads, for `bytes` in total: the median
// of seven runs.
double memcpy_bandwidth(ThreadPool& pool, double bytes) {
  using Clock = std::chrono::steady_clock;
  const auto half = static_cast<std::int64_t>(bytes / 8);
  const auto from = random_buffer<float>(half);
  const Buffer<float> to(static_cast<std::size_t>(half));
  std::vector<double> rates;
  for (int i = 0; i < 8; ++i) {
    const auto begin = Clock::now();
    pool.for_ranges(half, 1 << 14, [&](std::int64_t at, std::int64_t end) {
      std::memcpy(to.data() + at, from->data() + at,
                  static_cast<std::size_t>(end - at) * sizeof(float));
    });
    const std::chrono::duration<double> time = Clock::now() - begin;
    if (i > 0) rates.push_back(bytes / time.count());
  }
  std::nth_element(rates.begin(), rates.begin() + 3, rates.end());
  return rates[3];
}

void measure(benchmark::State& state, const Case& bench_case, Isa isa, const Model& model,
             int threads) {
  ThreadPool pool(threads);
  const Work work = bench_case.make(pool, isa, model);
  const bool bound_by_memory = work.flops == 0;
  const double bound =
      bound_by_memory ? memcpy_bandwidth(pool, work.bytes)
                      : 1e9 * kernels::measure_peak_gflops(isa, runtime::Precision::kBf16, pool);
  work.run();
  for ([[maybe_unused]] auto _ : state) work.run();
  const double amount =
      (bound_by_memory ? work.bytes : work.flops) * static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters[bound_by_memory ? "GB/s" : "GFLOP/s"] = Counter(amount * 1e-9, Counter::kIsRate);
  state.counters[bound_by_memory ? "of_memcpy" : "of_peak"] =
      Counter(amount / bound, Counter::kIsRate);
}

void register_benchmarks() {
  std::vector<Case> cases = activation_cases();
  for (const Case& other : parameter_cases()) cases.push_back(other);
  for (const Case& one : cases) {
    for (const Model& model : kModels) {
      for (const Isa isa : runtime::detect_cpu().isas) {
        for (const int threads : {1, 2}) {
          const std::string name = one.name + "/" + model.name + "/" +
                                   std::string(runtime::name(isa)) + "/" + std::to_string(threads);
#ifndef __clang_analyzer__  // reports a false leak of the registered benchmark
          benchmark::RegisterBenchmark(name.c_str(), measure, one, isa, model, threads)
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
#endif
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("cpu", tilewright::runtime::detect_cpu().model);
  tilewright::bench::register_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
