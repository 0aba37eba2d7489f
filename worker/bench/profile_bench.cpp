#include "worker/bench/profile_bench.h"

#include <fmt/format.h>

#include <numeric>

#include "common/base/strings.h"
#include "worker/bench/training_setup.h"
#include "worker/kernels/gemm/peak.h"

namespace tilewright::bench {
namespace {

template <typename Activation>
void run(const ProfileBenchOptions& options, runtime::Isa isa, ProfileBench& bench) {
  TrainingSetup<Activation> setup(options.workload, isa, options.shards);
  const nn::Batch batch = random_batch(options.workload, options.shards);
  Recorder recorder;
  const ProfiledOps<Activation> profiled(setup.plain_ops(), setup.plain_parameter_ops(), recorder);
  const auto profiled_step = [&] {
    setup.use(profiled.ops(), profiled.parameter_ops());
    setup.step(batch);
  };
  const auto plain_step = [&] {
    setup.use_plain_kernels();
    setup.step(batch);
  };
  for (int step = 0; step < kWarmUpSteps; ++step) profiled_step();
  recorder.clear();
  bench.times = time_pairs(options.steps, profiled_step, plain_step);
  bench.overhead = median_interval(bench.times.ratios());
  bench.threads = setup.pool().size();
  bench.profile.kernels = recorder.times(options.steps, bench.threads);
  bench.profile.sort_by_time();
  bench.profile.seconds =
      std::accumulate(bench.times.a.begin(), bench.times.a.end(), 0.0) / options.steps;
  kernels::PeakMeter peak(isa, options.workload.precision, setup.pool());
  for (const KernelTime& kernel : bench.profile.kernels) {
    peak.peak_for(kernel.operations / kernel.seconds * 1e-9);
  }
  bench.profile.peak_gflops = peak.gflops();
}

}  // namespace

ProfileBench bench_profile(const ProfileBenchOptions& options, runtime::Isa isa) {
  auto bench = run_workload<ProfileBench>(options, isa, [&]<typename Activation>(ProfileBench& to) {
    run<Activation>(options, isa, to);
  });
  bench.profile.title = fmt::format(
      "{}, {} on {}, {}: {:.1f} ms per step", options.workload.description(), bench.isa, bench.cpu,
      counted(static_cast<std::size_t>(bench.threads), "thread"), 1e3 * bench.profile.seconds);
  return bench;
}

std::string ProfileBench::to_json() const {
  nlohmann::ordered_json json = json_of("profile", options.workload);
  json["virtual_shards"] = options.shards;
  json["profiled_seconds"] = times.a;
  json["plain_seconds"] = times.b;
  json["median_plain_seconds"] = median(times.b);
  json["median_ratio"] = median(times.ratios());
  if (overhead) {
    json["ratio_low"] = overhead->low;
    json["ratio_high"] = overhead->high;
    json["coverage"] = overhead->coverage;
  }
  json["peak_gflops"] = profile.peak_gflops;
  json["seconds"] = profile.seconds;
  json["kernels"] = profile.to_json();
  return json.dump(2) + "\n";
}

std::string ProfileBench::to_text() const {
  std::string out = profile.title + "\n" + profile.to_text();
  out += fmt::format(
      "Profiled steps take {:.4f} times as long as unprofiled steps (median ratio of {} pairs)",
      median(times.ratios()), times.a.size());
  out += overhead ? fmt::format(", {:.4f} to {:.4f} with {:.1f} % confidence.\n", overhead->low,
                                overhead->high, 100 * overhead->coverage)
                  : fmt::format("; a confidence interval needs {}.\n", kMinIntervalValues);
  return out;
}

}  // namespace tilewright::bench
