// Measures this CPU's peaks: the arithmetic of each instruction set and type, and copying memory.
#pragma once

#include <string>
#include <vector>

#include "worker/runtime/cpu.h"
#include "worker/runtime/precision.h"

namespace tilewright::bench {

struct PeakBenchOptions {
  std::vector<runtime::Isa> isas;
  std::vector<int> threads = {1, 2};
  std::int64_t copied_bytes = 128 << 20;  // of each thread
  int repetitions = 7;
};

struct PeakBenchRow {
  std::string isa;
  runtime::Precision precision = runtime::Precision::kFp32;
  int threads = 1;
  double gflops = 0;  // the largest of the repetitions: a busy CPU only lowers it
  double median_gflops = 0;
};

struct CopyRow {
  int threads = 1;
  double gigabytes_per_second = 0;  // read and written
};

struct PeakBench {
  std::string cpu;
  std::vector<PeakBenchRow> rows;
  std::vector<CopyRow> copies;
  std::string to_json() const;
  std::string to_text() const;
};

PeakBench bench_peak(const PeakBenchOptions& options);

}  // namespace tilewright::bench
