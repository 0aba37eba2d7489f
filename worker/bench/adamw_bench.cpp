#include "worker/bench/adamw_bench.h"

#include <fmt/format.h>

#include "common/base/strings.h"
#include "worker/bench/memory_rate.h"
#include "worker/bench/operands.h"
#include "worker/bench/statistics.h"
#include "worker/bench/training_setup.h"

namespace tilewright::bench {
namespace {

constexpr std::int64_t kCopiedBytes = 128 << 20;  // of each thread

template <typename Activation>
void run(const AdamWBenchOptions& options, runtime::Isa isa, AdamWBench& bench) {
  TrainingSetup<Activation> setup(options.workload, isa, 1);
  const std::span<float> gradient = setup.gradient();
  const auto random = random_buffer<float>(std::ssize(gradient), 1);
  std::ranges::copy(random.span(), gradient.data());
  setup.update();  // touches the moments
  for (int i = 0; i < options.repetitions; ++i) {
    bench.seconds.push_back(seconds([&] { setup.update(); }));
  }
  Recorder recorder;
  const ProfiledOps<Activation> profiled(setup.plain_ops(), setup.plain_parameter_ops(), recorder);
  setup.use(profiled.ops(), profiled.parameter_ops());
  double total = 0;
  for (int i = 0; i < options.repetitions; ++i) total += seconds([&] { setup.update(); });
  bench.threads = setup.pool().size();
  bench.profile.kernels = recorder.times(options.repetitions, bench.threads);
  bench.profile.seconds = total / options.repetitions;
  bench.profile.sort_by_time();
  for (const KernelTime& kernel : bench.profile.kernels) bench.bytes += kernel.bytes;
  bench.median = median(bench.seconds);
  bench.gigabytes_per_second = bench.bytes / bench.median * 1e-9;
  bench.working_set_bytes = 4.0 * (3.0 * static_cast<double>(setup.model().parameters().size()) +
                                   static_cast<double>(gradient.size())) +
                            static_cast<double>(setup.packed_bytes());
  bench.last_cache_bytes = static_cast<double>(last_cache_bytes());
  bench.copy_gigabytes_per_second =
      copy_gigabytes_per_second(setup.pool(), kCopiedBytes, options.repetitions);
}

}  // namespace

AdamWBench bench_adamw(const AdamWBenchOptions& options, runtime::Isa isa) {
  return run_workload<AdamWBench>(options, isa, [&]<typename Activation>(AdamWBench& bench) {
    run<Activation>(options, isa, bench);
  });
}

std::string AdamWBench::to_json() const {
  nlohmann::ordered_json json = json_of("adamw", options.workload);
  json["seconds"] = seconds;
  json["median_seconds"] = median;
  json["bytes"] = bytes;
  json["gigabytes_per_second"] = gigabytes_per_second;
  json["copy_gigabytes_per_second"] = copy_gigabytes_per_second;
  json["working_set_bytes"] = working_set_bytes;
  json["last_cache_bytes"] = last_cache_bytes;
  json["kernels"] = profile.to_json();
  return json.dump(2) + "\n";
}

std::string AdamWBench::to_text() const {
  std::string cache = "the size of the last-level cache is unknown";
  if (last_cache_bytes > 0) {
    cache =
        working_set_bytes > last_cache_bytes
            ? fmt::format("{:.1f} times the last-level cache", working_set_bytes / last_cache_bytes)
            : "which fits in the last-level cache: use a larger model to measure memory bandwidth";
  }
  return fmt::format(
      "AdamW and packing of {}, {} on {}: {:.1f} ms, {:.1f} GB/s ({:.0f} % of memcpy's "
      "{:.1f}); working set {:.0f} MB, {}\n{}",
      options.workload.model, isa, counted(static_cast<std::size_t>(threads), "thread"),
      1e3 * median, gigabytes_per_second, 100 * gigabytes_per_second / copy_gigabytes_per_second,
      copy_gigabytes_per_second, working_set_bytes * 1e-6, cache, profile.to_text());
}

}  // namespace tilewright::bench
