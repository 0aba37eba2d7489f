// Benchmarks the optimizer's step on all parameters of a model: gradient norm, AdamW and packing of
// the weights.
#pragma once

#include <string>
#include <vector>

#include "worker/bench/profile.h"
#include "worker/bench/workload.h"

namespace tilewright::bench {

struct AdamWBenchOptions {
  Workload workload;  // its tokens decide which word embeddings have a gradient
  int repetitions = 7;
};

struct AdamWBench : WorkloadRun {
  AdamWBenchOptions options;
  std::vector<double> seconds;
  double median = 0;
  double bytes = 0;  // least number of bytes that a step reads and writes
  double gigabytes_per_second = 0;
  double copy_gigabytes_per_second = 0;  // of memcpy with the same threads
  // Parameters, moments, gradient and packed weights; if it is not larger than the cache, the
  // figures are those of the cache.
  double working_set_bytes = 0;
  double last_cache_bytes = 0;  // 0: unknown
  Profile profile;              // of further steps
  std::string to_json() const;
  std::string to_text() const;
};

AdamWBench bench_adamw(const AdamWBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
