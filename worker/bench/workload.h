// What the benchmarks of training steps compute: a model, a head and a batch of random tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/nn/batch.h"
#include "worker/nn/encoder_config.h"

namespace tilewright::bench {

struct Workload {
  std::string model = "bert-base";  // one of the names of model_config()
  bool question_answering = false;  // otherwise classification
  std::vector<std::int32_t> lengths = std::vector<std::int32_t>(32, 128);  // tokens per example
  bool bf16 = true;
  bool gradient_checkpointing = false;
  int threads = 0;  // 0: one per physical core
  kernels::GemmBackend backend = kernels::GemmBackend::kNative;

  // "bert-base question answering 12 x 384", "minilm 32 x 9 to 101 (mean 53.2)".
  std::string description() const;
  // Appends model, head, dtype, examples, tokens and the range of lengths.
  void add_to(nlohmann::ordered_json& json) const;
};

// Sizes of a known model; throws Failure (kUsage) that lists the known names otherwise.
nn::EncoderConfig model_config(const Workload& workload);

// Threads of the pool: `threads`, or one per physical core if it is 0.
int pool_threads(int threads);

// Random tokens; example i of n is in shard i * shards / n, rounded down.
nn::Batch random_batch(const Workload& workload, std::int64_t shards);

}  // namespace tilewright::bench
