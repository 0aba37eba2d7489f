// Benchmarks the all-reduce of gradients between processes of this host, bound to CPUs as those of
// a training.
#pragma once

#include <string>
#include <vector>

namespace tilewright::bench {

struct AllreduceBenchOptions {
  int ranks = 2;
  std::vector<double> megabytes = {0.0625, 1, 25, 100, 400};  // MiB of fp32 gradients
  std::string transport = "shm";                              // or tcp
  int streams = 1;
  int repetitions = 7;
};

struct AllreduceBenchRow {
  double megabytes = 0;
  double milliseconds = 0;          // of rank 0, from a barrier; mean of the repetitions
  double gigabytes_per_second = 0;  // GiB of one rank's gradients over that time
};

struct AllreduceBench {
  std::string cpu;
  int ranks = 0;
  std::string transport;
  int streams = 1;
  std::vector<AllreduceBenchRow> rows;
  std::string to_json() const;
  std::string to_text() const;  // for a terminal, one line per row
};

// Starts the ranks as child processes, so no other thread may run. Throws Failure (kInternal) if a
// sum is wrong.
AllreduceBench bench_allreduce(const AllreduceBenchOptions& options);

}  // namespace tilewright::bench
