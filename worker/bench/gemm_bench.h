// How fast the linear layers are, beside oneDNN in the same run and beside this CPU's ceiling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/kernels/ops.h"

namespace tilewright::bench {

// y[rows, n] = x[rows, k] W[n, k]^T
struct GemmShape {
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
};

struct GemmBenchOptions {
  runtime::Isa isa = runtime::Isa::kRef;
  bool bf16 = true;
  std::vector<int> threads = {1, 2};
  // The layers of a 384-wide model with about 1,700 tokens, of BERT-base with 12 x 384, and the
  // two of BERT-large whose rows are a power of two.
  std::vector<GemmShape> shapes = {{1700, 384, 384},   {1700, 384, 1536}, {1700, 1536, 384},
                                   {4608, 768, 768},   {4608, 768, 3072}, {4608, 3072, 768},
                                   {4608, 1024, 4096}, {4608, 4096, 1024}};
  int shards = 8;  // of the tree that sums dW
  int repetitions = 7;
};

struct GemmBenchRow {
  GemmShape shape;
  const char* operation = "";  // "forward", "dX", "dW"
  int threads = 1;
  double gflops = 0;         // median of the repetitions
  double onednn_gflops = 0;  // likewise; 0 where oneDNN has nothing for this type and ISA
  double ceiling_gflops = 0;
};

struct GemmBench {
  std::string cpu;
  std::string isa;
  std::string type;
  std::string kernel;
  std::vector<GemmBenchRow> rows;
  std::string to_json() const;
  std::string to_text() const;  // for a terminal, one line a row
};

// Runs our kernels and oneDNN's in turns, each after one untimed call, and takes medians. oneDNN is
// held to the same instruction set if it has not run in this process before.
GemmBench bench_gemm(const GemmBenchOptions& options);

}  // namespace tilewright::bench
