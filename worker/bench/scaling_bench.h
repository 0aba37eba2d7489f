// Benchmarks how training scales to several nodes, on one machine. The computation of a step is
// measured here, then each node is a process in a network namespace of its own that exchanges
// gradients of the same size over links of a given rate, with the transport, the buckets and the
// shards of training, and waits for the measured times in place of computing. One factor slows
// links, computation and communication threads, because one machine cannot move the data of all
// nodes; the results are divided by it. Each node has the same batch (weak scaling).
#pragma once

#include <string>
#include <vector>

#include "worker/bench/scaling_model.h"
#include "worker/bench/workload.h"

namespace tilewright::bench {

// With other numbers of nodes than powers of two the nodes have different numbers of virtual
// shards.
inline constexpr int kMaxNodes = 64;

struct ScalingBenchOptions {
  Workload workload;                      // of one node
  std::vector<int> nodes = {1, 2, 4, 8};  // powers of two up to kMaxNodes
  double link_rate = 25e9;                // bits per second
  double slowdown = 0;                    // 0: default_slowdown()
  double host_speed = 1;                  // of the emulated hosts relative to this machine
  int streams = 1;                        // --ddp_streams
  bool bf16_gradients = false;            // --ddp_comm_hook=bf16, with one shard per node
  // Timed exchanges and steps, of which the medians are reported. The computation is measured three
  // times as often, and its shortest step emulated.
  int repetitions = 3;
};

struct ScalingBench : WorkloadRun {
  ScalingBenchOptions options;   // with the slowdown and sorted nodes, from 1
  std::vector<ScalingRow> rows;  // by nodes
  std::string to_json() const;
  std::string to_text() const;
};

// Starts child processes, so no other thread may run. Throws Failure(kUnsupported) without root or
// iproute2, Failure(kMemory) if the gradients of all nodes do not fit into the memory, and
// Failure(kUsage) for a bad number of nodes.
ScalingBench bench_scaling(const ScalingBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
