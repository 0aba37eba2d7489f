#include "worker/bench/allreduce_bench.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/host/binding.h"
#include "worker/bench/rank_group.h"
#include "worker/bench/statistics.h"
#include "worker/collectives/exchange.h"
#include "worker/collectives/reducer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {
namespace {

using collectives::Range;

constexpr Duration kRunTimeout = std::chrono::minutes(5);

// Sums in place and checks each sum. Returns the mean in seconds, as the programs that Tilewright
// is compared with do.
double time_sums(collectives::Mesh& mesh, std::int64_t count, int repetitions) {
  const auto elements = static_cast<std::size_t>(count);
  const auto shared =
      collectives::GradientMemory::share(mesh, elements, monotonic_now() + kRunTimeout);
  const runtime::Buffer<float> own(shared ? 0 : elements);
  const std::span<float> gradient = shared ? shared->own() : own.span();
  const int world = mesh.world();
  collectives::ReducerOptions options;
  options.memory = shared.get();
  collectives::Reducer reducer(mesh, collectives::even_split(world, world), world, options);
  const collectives::GradientParts parts{
      .count = count,
      .parts = {{reducer.local_parts().front(), gradient.data()}},
      .sum = gradient.data()};
  const std::vector<Range> buckets{{0, count}};
  const auto sum = [&] {
    reducer.begin_step(parts, buckets);
    reducer.finish(monotonic_now() + kRunTimeout);
  };
  double total = 0;
  for (int run = -1; run < repetitions; ++run) {
    fill_summands(gradient, mesh.rank());
    collectives::barrier(mesh, monotonic_now() + kRunTimeout);
    const double time = seconds(sum);
    if (run >= 0) total += time;
    check_sums(gradient, world, 1);
  }
  return total / repetitions;
}

}  // namespace

AllreduceBench bench_allreduce(const AllreduceBenchOptions& options) {
  std::vector<net::Listener> listeners;
  listeners.reserve(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) {
    listeners.push_back(net::Listener::bind({"127.0.0.1", 0}).or_throw());
  }
  RankGroup group(std::move(listeners));
  const auto shared_memory = options.transport == "shm" ? collectives::SharedMemory::kRequired
                                                        : collectives::SharedMemory::kNever;
  const host::CpuPlan cpus = host::plan_cpus(host::this_host(), options.ranks);
  const std::vector<std::string> results = run_ranks(options.ranks, [&](int rank) {
    host::bind_process(cpus.of(rank));
    const auto mesh = group.connect(rank, shared_memory, options.streams);
    std::vector<double> times;
    for (const double megabytes : options.megabytes) {
      const auto count = static_cast<std::int64_t>(megabytes * (1 << 20) / sizeof(float));
      times.push_back(time_sums(*mesh, count, options.repetitions));
    }
    return nlohmann::json(times).dump();
  });
  const auto times = nlohmann::json::parse(results.front()).get<std::vector<double>>();
  AllreduceBench bench{
      runtime::detect_cpu().model, options.ranks, options.transport, options.streams, {}};
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double megabytes = options.megabytes[i];
    bench.rows.push_back({megabytes, times[i] * 1e3, megabytes / 1024 / times[i]});
  }
  return bench;
}

std::string AllreduceBench::to_json() const {
  nlohmann::ordered_json json{
      {"cpu", cpu}, {"ranks", ranks}, {"transport", transport}, {"streams", streams}};
  for (const AllreduceBenchRow& row : rows) {
    json["rows"].push_back({{"megabytes", row.megabytes},
                            {"milliseconds", row.milliseconds},
                            {"gigabytes_per_second", row.gigabytes_per_second}});
  }
  return json.dump(2) + "\n";
}

std::string AllreduceBench::to_text() const {
  std::string text =
      fmt::format("{}, {} ranks, {}, {}\n{:>10} {:>12} {:>8}\n", cpu, ranks, transport,
                  counted(static_cast<std::size_t>(streams), "stream"), "MiB", "ms", "GiB/s");
  for (const AllreduceBenchRow& row : rows) {
    text += fmt::format("{:>10.4g} {:>12.3f} {:>8.2f}\n", row.megabytes, row.milliseconds,
                        row.gigabytes_per_second);
  }
  return text;
}

}  // namespace tilewright::bench
