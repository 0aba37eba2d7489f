#include "worker/bench/peak_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/bench/memory_rate.h"
#include "worker/bench/statistics.h"
#include "worker/kernels/gemm/peak.h"

namespace tilewright::bench {

PeakBench bench_peak(const PeakBenchOptions& options) {
  PeakBench bench;
  bench.cpu = runtime::detect_cpu().model;
  for (const int threads : options.threads) {
    runtime::ThreadPool pool(threads);
    for (const runtime::Isa isa : options.isas) {
      for (const auto precision : {runtime::Precision::kBf16, runtime::Precision::kFp32}) {
        std::vector<double> values;
        values.reserve(static_cast<std::size_t>(options.repetitions));
        for (int i = 0; i < options.repetitions; ++i) {
          values.push_back(kernels::measure_peak_gflops(isa, precision, pool));
        }
        bench.rows.push_back({.isa = std::string(runtime::name(isa)),
                              .precision = precision,
                              .threads = threads,
                              .gflops = *std::max_element(values.begin(), values.end()),
                              .median_gflops = median(values)});
      }
    }
    bench.copies.push_back(
        {threads, copy_gigabytes_per_second(pool, options.copied_bytes, options.repetitions)});
  }
  return bench;
}

std::string PeakBench::to_json() const {
  nlohmann::ordered_json json;
  json["benchmark"] = "peak";
  json["cpu"] = cpu;
  json["peak"] = nlohmann::ordered_json::array();
  for (const PeakBenchRow& row : rows) {
    json["peak"].push_back({{"isa", row.isa},
                            {"dtype", name(row.precision)},
                            {"threads", row.threads},
                            {"gflops", row.gflops},
                            {"median_gflops", row.median_gflops}});
  }
  json["copy"] = nlohmann::ordered_json::array();
  for (const CopyRow& row : copies) {
    json["copy"].push_back(
        {{"threads", row.threads}, {"gigabytes_per_second", row.gigabytes_per_second}});
  }
  return json.dump(2) + "\n";
}

std::string PeakBench::to_text() const {
  std::string out = fmt::format("{}\n{:<14}{:<6}{:>8}{:>10}{:>10}\n", cpu, "", "", "threads",
                                "GFLOP/s", "median");
  for (const PeakBenchRow& row : rows) {
    out += fmt::format("{:<14}{:<6}{:>8}{:>10.0f}{:>10.0f}\n", row.isa, name(row.precision),
                       row.threads, row.gflops, row.median_gflops);
  }
  for (const CopyRow& row : copies) {
    out +=
        fmt::format("{:<20}{:>8}{:>10.1f} GB/s\n", "memcpy", row.threads, row.gigabytes_per_second);
  }
  return out;
}

}  // namespace tilewright::bench
