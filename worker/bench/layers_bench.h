// Benchmarks one encoder layer, forward and backward with dropout, by operation.
#pragma once

#include <string>

#include "worker/bench/profile.h"
#include "worker/bench/workload.h"

namespace tilewright::bench {

struct LayersBenchOptions {
  Workload workload;  // the head does not matter
  int repetitions = 7;
  std::int64_t shards = 8;
};

struct LayersBench : WorkloadRun {
  LayersBenchOptions options;
  double forward_seconds = 0;  // medians of repetitions without timing of kernels
  double backward_seconds = 0;
  double gflops = 0;  // of both, as counted by nn/flops.h
  Profile forward;    // of repetitions with it, in the order of the calls
  Profile backward;
  std::string to_json() const;
  std::string to_text() const;
};

LayersBench bench_layers(const LayersBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
