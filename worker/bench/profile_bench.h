// A training step's time by kernel, and what measuring it costs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/bench/profile.h"
#include "worker/bench/statistics.h"
#include "worker/bench/workload.h"

namespace tilewright::bench {

struct ProfileBenchOptions {
  Workload workload;
  int steps = 10;  // profiled; as many plain ones in alternation
  std::int64_t shards = 8;
};

struct ProfileBench : WorkloadRun {
  ProfileBenchOptions options;
  PairedTimes times;                       // a: profiled steps, b: plain ones
  std::optional<MedianInterval> overhead;  // of the ratios
  Profile profile;
  std::string to_json() const;
  std::string to_text() const;
};

ProfileBench bench_profile(const ProfileBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
