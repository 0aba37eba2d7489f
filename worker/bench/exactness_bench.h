// The cost of exact mode: steps that sum gradients over virtual shards in their tree, in
// alternation with steps of one shard, in one process. Between processes bench/exactness.py
// measures it.
#pragma once

#include <optional>
#include <string>

#include "worker/bench/statistics.h"
#include "worker/bench/workload.h"

namespace tilewright::bench {

struct ExactnessBenchOptions {
  Workload workload;
  int pairs = 20;
  std::int64_t shards = 8;  // of an exact step
};

struct ExactnessBench : WorkloadRun {
  ExactnessBenchOptions options;
  PairedTimes times;                    // a: exact steps, b: inexact ones
  std::optional<MedianInterval> ratio;  // exact / inexact
  std::string to_json() const;
  std::string to_text() const;
};

ExactnessBench bench_exactness(const ExactnessBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
