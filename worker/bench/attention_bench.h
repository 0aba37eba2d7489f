// Benchmarks attention forward and backward, with dropout, against this CPU's peak in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/runtime/precision.h"

namespace tilewright::bench {

// A batch of attention: the tokens of each example, and the heads.
struct AttentionShape {
  std::vector<std::int32_t> lengths;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
};

struct AttentionBenchOptions {
  runtime::Isa isa = runtime::Isa::kRef;
  runtime::Precision precision = runtime::Precision::kBf16;
  std::vector<int> threads = {1, 2};
  std::vector<AttentionShape> shapes;  // empty: those of the models (model_attention_shapes)
  double dropout = 0.1;
  int repetitions = 7;
};

struct AttentionBenchRow {
  AttentionShape shape;
  int threads = 1;
  // Medians of the repetitions. A product of one head counts 2 S x S x D operations: 2 of them in
  // forward, 5 in backward, which computes the scores again.
  double forward_gflops = 0;
  double backward_gflops = 0;
  double gflops = 0;  // forward and backward
  double peak_gflops = 0;
};

struct AttentionBench {
  std::string cpu;
  std::string isa;
  std::string type;
  std::string kernel;
  std::vector<AttentionBenchRow> rows;
  std::string to_json() const;
  std::string to_text() const;  // for a terminal, one line per row
};

// MiniLM with MRPC's mean length, then MiniLM, BERT-base and BERT-large at their usual lengths.
std::vector<AttentionShape> model_attention_shapes();

// A JSON array with the examples, the tokens of all examples, heads and head_size of each shape.
std::string shapes_to_json(const std::vector<AttentionShape>& shapes);

AttentionBench bench_attention(const AttentionBenchOptions& options);

}  // namespace tilewright::bench
