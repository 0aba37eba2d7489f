// What the benchmarks of training steps compute: a model, a head and a batch of random tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/nn/batch.h"
#include "worker/nn/encoder_config.h"
#include "worker/runtime/bf16.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/precision.h"

namespace tilewright::bench {

struct Workload {
  std::string model = "bert-base";  // one of the names of model_config()
  bool question_answering = false;  // otherwise classification
  std::vector<std::int32_t> lengths = std::vector<std::int32_t>(32, 128);  // tokens per example
  runtime::Precision precision = runtime::Precision::kBf16;
  bool gradient_checkpointing = false;
  int threads = 0;  // 0: one per physical core
  kernels::GemmBackend backend = kernels::GemmBackend::kNative;

  // "bert-base question answering 12 x 384", "minilm 32 x 9 to 101 (mean 53.2)".
  std::string description() const;
  // Appends model, head, dtype, examples, tokens and the range of lengths.
  void add_to(nlohmann::ordered_json& json) const;
};

// Where a benchmark of a workload ran; the results of such benchmarks derive from it.
struct WorkloadRun {
  std::string cpu;
  std::string isa;
  int threads = 0;

  // The first members of the results as JSON: benchmark, cpu, isa, the workload and threads.
  nlohmann::ordered_json json_of(const char* benchmark, const Workload& workload) const;
};

// Runs a benchmark in the number type of its workload: calls run.operator()<runtime::bf16>(bench)
// or run.operator()<float>(bench).
template <typename Bench, typename Options, typename Run>
Bench run_workload(const Options& options, runtime::Isa isa, Run run) {
  Bench bench;
  bench.options = options;
  bench.cpu = runtime::detect_cpu().model;
  bench.isa = runtime::name(isa);
  if (options.workload.precision == runtime::Precision::kBf16) {
    run.template operator()<runtime::bf16>(bench);
  } else {
    run.template operator()<float>(bench);
  }
  return bench;
}

// Sizes of a known model; throws Failure (kUsage) that lists the known names otherwise.
nn::EncoderConfig model_config(const Workload& workload);

// Threads of the pool: `threads`, or one per physical core if it is 0.
int pool_threads(int threads);

// Random tokens; example i of n is in shard i * shards / n, rounded down.
nn::Batch random_batch(const Workload& workload, std::int64_t shards);

}  // namespace tilewright::bench
