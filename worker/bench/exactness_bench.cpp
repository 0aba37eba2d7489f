#include "worker/bench/exactness_bench.h"

#include <fmt/format.h>

#include "common/base/strings.h"
#include "worker/bench/training_setup.h"

namespace tilewright::bench {
namespace {

template <typename Activation>
void run(const ExactnessBenchOptions& options, runtime::Isa isa, ExactnessBench& bench) {
  TrainingSetup<Activation> setup(options.workload, isa, options.shards);
  const nn::Batch exact = random_batch(options.workload, options.shards);
  const nn::Batch inexact = random_batch(options.workload, 1);
  bench.threads = setup.pool().size();
  setup.step(exact);  // warm-up
  setup.step(inexact);
  bench.times = time_pairs(
      options.pairs, [&] { setup.step(exact); }, [&] { setup.step(inexact); });
  bench.ratio = median_interval(bench.times.ratios());
}

}  // namespace

ExactnessBench bench_exactness(const ExactnessBenchOptions& options, runtime::Isa isa) {
  return run_workload<ExactnessBench>(
      options, isa,
      [&]<typename Activation>(ExactnessBench& bench) { run<Activation>(options, isa, bench); });
}

std::string ExactnessBench::to_json() const {
  nlohmann::ordered_json json = json_of("exactness", options.workload);
  json["virtual_shards"] = options.shards;
  json["exact_seconds"] = times.a;
  json["inexact_seconds"] = times.b;
  json["median_exact_seconds"] = median(times.a);
  json["median_inexact_seconds"] = median(times.b);
  json["median_ratio"] = median(times.ratios());
  if (ratio) {
    json["ratio_low"] = ratio->low;
    json["ratio_high"] = ratio->high;
    json["coverage"] = ratio->coverage;
  }
  return json.dump(2) + "\n";
}

std::string ExactnessBench::to_text() const {
  std::string out = fmt::format(
      "{}, {} on {}: {:.3f} s with {} shards, {:.3f} s with 1; median ratio of {} pairs "
      "{:.4f}",
      options.workload.description(), isa, counted(static_cast<std::size_t>(threads), "thread"),
      median(times.a), options.shards, median(times.b), times.a.size(), median(times.ratios()));
  out += ratio ? fmt::format(", {:.4f} to {:.4f} with {:.1f} % confidence\n", ratio->low,
                             ratio->high, 100 * ratio->coverage)
               : fmt::format("; a confidence interval needs {}\n", kMinIntervalValues);
  return out;
}

}  // namespace tilewright::bench
