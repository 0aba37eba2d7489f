#include "worker/train/summary.h"

#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

// With the 29 columns of timestamp and level, a log line stays below 120.
constexpr std::size_t kMaxSummaryColumns = 90;

TEST(Summary, MachineLineShortensTheCpuModel) {
  const std::string line =
      machine_line({.cpu_model = "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.4GHz",
                    .workers = 2,
                    .threads = 1,
                    .isa = runtime::Isa::kAvx512Bf16,
                    .peak_gflops = 493.2});
  EXPECT_EQ(line,
            "machine: Intel Xeon Platinum 8488C, 2 x 1 thread, avx512_bf16, peak 2 x 493 GFLOP/s");
  EXPECT_LE(line.size(), kMaxSummaryColumns);
}

TEST(Summary, LongLinesAreTruncated) {
  const std::string line = machine_line({.cpu_model = std::string(100, 'x'),
                                         .workers = 1000,
                                         .threads = 1000,
                                         .isa = runtime::Isa::kAvx512Bf16,
                                         .bf16 = false,
                                         .peak_gflops = 99999});
  EXPECT_EQ(line.size(), kMaxSummaryColumns);
}

TEST(Summary, ResultsAndBaselinesFitOnOneLine) {
  const tasks::Metrics metrics = {{"accuracy", 0.5}, {"f1", 0.25}, {"combined_score", 0.375}};
  const std::string results =
      results_line({.metrics = metrics, .loss = 0.704, .seconds = 1, .examples = 180});
  EXPECT_EQ(
      results,
      "results: accuracy 0.5000, f1 0.2500, combined_score 0.3750; loss 0.7040; 180 examples");
  EXPECT_LE(results.size(), kMaxSummaryColumns);
  const std::string baselines = baselines_line({{"majority", metrics}, {"word overlap", metrics}});
  EXPECT_EQ(baselines,
            "baselines: majority accuracy 0.5000, f1 0.2500; word overlap accuracy 0.5000, "
            "f1 0.2500");
  EXPECT_LE(baselines.size(), kMaxSummaryColumns);
}

}  // namespace
}  // namespace tilewright::train
