// Benchmarks complete training steps: forward, backward and AdamW, with dropout, on random tokens.
// bench/step_vs_pytorch.py times the same shapes in PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/bench/workload.h"

namespace tilewright::bench {

struct StepBenchOptions {
  Workload workload;
  int steps = 5;            // timed, after two warm-up steps
  std::int64_t shards = 8;  // virtual shards; 1: exact mode is off
};

struct StepBench : WorkloadRun {
  StepBenchOptions options;
  std::vector<double> seconds;  // of each timed step
  double median = 0;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  double gflops = 0;  // operations as counted by nn/flops.h
  double peak_gflops = 0;
  std::uint64_t peak_memory = 0;  // resident bytes, in the steps or before
  std::string to_json() const;
  std::string to_text() const;
};

StepBench bench_step(const StepBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
