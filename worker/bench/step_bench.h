// Benchmarks complete training steps (forward, backward, AdamW, with dropout) of sequence
// classification or question answering on random tokens of equal length. bench/ times the same
// shapes in PyTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/nn/encoder_config.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {

struct StepBenchOptions {
  std::string model = "bert-base";  // as in bench_config()
  bool question_answering = false;  // otherwise classification
  std::int64_t examples = 32;
  std::int64_t seqlen = 128;
  std::int64_t steps = 5;   // timed, after two warm-up steps
  std::int64_t shards = 8;  // virtual shards; 1: exact mode is off
  bool bf16 = true;
  int threads = 0;  // 0: one per physical core
  kernels::GemmBackend backend = kernels::GemmBackend::kNative;
};

struct StepBenchResult {
  std::string cpu;
  std::string isa;
  std::string backend;
  StepBenchOptions options;
  std::vector<double> seconds;  // of each timed step
  double median = 0;
  double examples_per_second = 0;
  double tokens_per_second = 0;
  double gflops = 0;  // operations as counted by nn/flops.h
  double peak_gflops = 0;
  std::string to_json() const;
  std::string to_text() const;
};

// Dimensions of a known model; throws Failure (kUsage) that lists the known names otherwise.
nn::EncoderConfig bench_config(const std::string& model);

StepBenchResult bench_step(const StepBenchOptions& options, runtime::Isa isa);

}  // namespace tilewright::bench
