// The arithmetic of `bench scaling`: what is slowed and by how much, when buckets start, and what
// follows from the measured times. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/runtime/range.h"

namespace tilewright::bench {

// Bits per second of "25Gbit", "800Mbit" or "1.5gbit", the notation of tc(8). Throws
// Failure(kUsage).
double parse_link_rate(const std::string& text);
// The same notation: "25Gbit".
std::string format_link_rate(double bits_per_second);

// The smallest integer factor with which the exchange of `nodes` nodes with `streams` communication
// threads each, over such links, takes at most half of the CPUs' time.
double default_slowdown(int nodes, int streams, int cpus, double bits_per_second);

// When a node has computed what, in seconds from the start of its step without an exchange.
struct StepTimeline {
  std::vector<double> bucket_ready;  // ascending
  double compute = 0;                // forward and backward
  double update = 0;                 // duration of gradient norm and AdamW after them
  double step() const { return compute + update; }
};

// Elements [0, end) of the gradient are final.
struct GradientReady {
  std::int64_t end = 0;
  double seconds = 0;
};

// When each bucket is complete: the time of the first event that covers it, or `compute` without
// one. Events and buckets are in ascending order.
std::vector<double> bucket_times(std::span<const runtime::Range> buckets,
                                 std::span<const GradientReady> events, double compute);

// The timeline of the shortest step: other programs of a shared machine only lengthen one.
const StepTimeline& shortest_timeline(std::span<const StepTimeline> timelines);

// As computed by a host that is `speed` times as fast.
StepTimeline faster(StepTimeline timeline, double speed);

// One number of nodes. Times are in seconds and already divided by the slowdown.
struct ScalingRow {
  int nodes = 1;
  std::int64_t shards = 0;          // virtual shards of all nodes
  std::int64_t gradient_bytes = 0;  // of one node
  double compute = 0;               // forward and backward
  double update = 0;                // gradient norm and AdamW
  double exchange = 0;              // of a complete gradient, while nothing is computed
  double exposed = 0;               // of the exchange in a step, after backward
  double step = 0;
  double communication_cpu = 0;  // CPU seconds of a node's communication thread in a step
  double machine_load = 0;       // share of this machine's CPUs that the emulation used
  // Set by compare_with_one_node():
  double speedup = 1;  // examples per second relative to one node
  double efficiency = 1;
  // If the communication thread takes its CPU time from the threads that compute.
  double shared_step = 0;
  double shared_efficiency = 1;

  double hidden_share() const;  // of the exchange, behind backward; 1 without an exchange
};

// `rows`: one node first. `compute_threads`: threads of this machine's speed that compute in a
// node.
void compare_with_one_node(std::vector<ScalingRow>& rows, double compute_threads);

// Results of other programs on other hosts.
struct PublishedScaling {
  int nodes;
  double speedup;
  const char* what;
  double efficiency() const { return speedup / nodes; }
};
std::span<const PublishedScaling> published_scaling();

}  // namespace tilewright::bench
