// Benchmarks the linear layers against oneDNN and against this CPU's peak in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"
#include "worker/runtime/precision.h"

namespace tilewright::bench {

// y[rows, n] = x[rows, k] W[n, k]^T
struct GemmShape {
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
};

struct GemmBenchOptions {
  runtime::Isa isa = runtime::Isa::kRef;
  runtime::Precision precision = runtime::Precision::kBf16;
  std::vector<int> threads = {1, 2};
  std::vector<GemmShape> shapes = {
      // MiniLM (hidden size 384) with 1,700 tokens.
      {1700, 384, 384},
      {1700, 384, 1536},
      {1700, 1536, 384},
      // BERT-base (768) with 12 x 384 tokens.
      {4608, 768, 768},
      {4608, 768, 3072},
      {4608, 3072, 768},
      // The feed-forward layers of BERT-large (1024). Rows whose length is a power of two compete
      // for the same sets of the L1 cache.
      {4608, 1024, 4096},
      {4608, 4096, 1024},
  };
  std::int64_t shards = 8;  // virtual shards over which dW is summed
  int repetitions = 7;
};

struct GemmBenchRow {
  GemmShape shape;
  const char* operation = "";  // "forward", "dX", "dW"
  int threads = 1;
  double gflops = 0;         // median of the repetitions
  double onednn_gflops = 0;  // median; 0: no kernels for this type and ISA
  double peak_gflops = 0;
};

struct GemmBench {
  std::string cpu;
  std::string isa;
  std::string type;
  std::string kernel;
  std::vector<GemmBenchRow> rows;
  std::string to_json() const;
  std::string to_text() const;  // for a terminal, one line per row
};

// Reads "ROWSxKxN", each 1 to 65536; throws Failure (kUsage) that says what was found otherwise.
GemmShape parse_gemm_shape(const std::string& text);

// A JSON array with rows, k and n of each shape.
std::string shapes_to_json(const std::vector<GemmShape>& shapes);

// Runs the native kernels and oneDNN alternately, each after one untimed call, and reports medians.
// oneDNN is limited to the same instruction set unless it has already run in this process.
GemmBench bench_gemm(const GemmBenchOptions& options);

}  // namespace tilewright::bench
