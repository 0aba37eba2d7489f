#include "worker/bench/step_bench.h"

#include <fmt/format.h>

#include "common/base/strings.h"
#include "worker/bench/statistics.h"
#include "worker/bench/training_setup.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/nn/flops.h"
#include "worker/runtime/available_memory.h"

namespace tilewright::bench {
namespace {

template <typename Activation>
void run(const StepBenchOptions& options, runtime::Isa isa, StepBench& bench) {
  TrainingSetup<Activation> setup(options.workload, isa, options.shards);
  const nn::Batch batch = random_batch(options.workload, options.shards);
  for (int step = 0; step < kWarmUpSteps; ++step) setup.step(batch);
  for (int step = 0; step < options.steps; ++step) {
    bench.seconds.push_back(seconds([&] { setup.step(batch); }));
  }
  bench.peak_memory = runtime::peak_rss();
  bench.threads = setup.pool().size();
  bench.median = median(bench.seconds);
  bench.examples_per_second = static_cast<double>(batch.B()) / bench.median;
  bench.tokens_per_second = static_cast<double>(batch.T()) / bench.median;
  bench.gflops = nn::step_flops(setup.config(), batch) / bench.median * 1e-9;
  bench.peak_gflops =
      kernels::PeakMeter(isa, options.workload.precision, setup.pool()).peak_for(bench.gflops);
}

}  // namespace

StepBench bench_step(const StepBenchOptions& options, runtime::Isa isa) {
  return run_workload<StepBench>(options, isa, [&]<typename Activation>(StepBench& bench) {
    run<Activation>(options, isa, bench);
  });
}

std::string StepBench::to_json() const {
  nlohmann::ordered_json json = json_of("step", options.workload);
  json["virtual_shards"] = options.shards;
  json["seconds"] = seconds;
  json["median_seconds"] = median;
  json["examples_per_second"] = examples_per_second;
  json["tokens_per_second"] = tokens_per_second;
  json["gflops"] = gflops;
  json["peak_gflops"] = peak_gflops;
  json["share_of_peak"] = gflops / peak_gflops;
  json["peak_memory_bytes"] = peak_memory;
  return json.dump(2) + "\n";
}

std::string StepBench::to_text() const {
  return fmt::format(
      "{} {} {} {} on {}, {} shards: {:.3f} s/step, {:.2f} examples/s, {:.0f} GFLOP/s "
      "({:.0f} % of {:.0f}), {:.2f} GB\n",
      options.workload.description(), name(options.workload.precision), isa,
      options.workload.backend == kernels::GemmBackend::kNative ? "native" : "onednn",
      counted(static_cast<std::size_t>(threads), "thread"), options.shards, median,
      examples_per_second, gflops, 100 * gflops / peak_gflops, peak_gflops,
      1e-9 * static_cast<double>(peak_memory));
}

}  // namespace tilewright::bench
