// Benchmarks checkpoints: how long the training stops for one that is written in the background,
// and for one that is written between two steps.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "worker/bench/workload.h"

namespace tilewright::bench {

struct CheckpointBenchOptions {
  Workload workload;
  int repetitions = 5;
  std::filesystem::path directory;  // the checkpoints are written to bench-checkpoint in it
};

struct CheckpointBench : WorkloadRun {
  CheckpointBenchOptions options;
  double bytes = 0;       // of weights and moments
  double touch = 0;       // seconds for the first touch of the copy's memory, once in a training
  double plain_step = 0;  // seconds of a step without a checkpoint, median
  // Of each checkpoint, in seconds: the training stops while it is written; the training stops
  // while it is copied; from then until it is committed; the additional time of the steps
  // meanwhile.
  std::vector<double> between_steps, copy, write, slowdown;
  std::string to_json() const;
  std::string to_text() const;
};

CheckpointBench bench_checkpoint(const CheckpointBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
