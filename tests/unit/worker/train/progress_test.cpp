#include "worker/train/progress.h"

#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

TEST(RateMeter, CountsRatesAndTimeLeftOverItsWindow) {
  RateMeter meter;
  MonotonicTime now{};
  meter.restart(now);
  StepReport report;
  report.total_steps = 100;
  report.examples = 32;
  report.tokens = 1600;
  report.flops = 2e9;
  Rates rates;
  for (int step = 1; step <= 40; ++step) {
    now += std::chrono::milliseconds(step <= 20 ? 1000 : 500);
    report.step = step;
    rates = meter.add(report, now);
  }
  EXPECT_DOUBLE_EQ(rates.examples_per_second, 64);
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 3200);
  EXPECT_DOUBLE_EQ(rates.gflops, 4);
  EXPECT_DOUBLE_EQ(rates.eta_seconds, 30);
}

TEST(Describe, SaysEverythingOnOneLine) {
  StepReport report;
  report.step = 120;
  report.total_steps = 690;
  report.epoch = 1.04;
  report.loss = 0.53214;
  report.learning_rate = 8.3e-5;
  EXPECT_EQ(describe(report, {231.04, 12100, 410, 95}, 893),
            "step 120/690 | epoch 1.04 | loss 0.5321 | lr 8.30e-05 | 231.0 examples/s | 12.1k "
            "tokens/s | 410 GFLOP/s (46 % of 893) | ETA 1 min 35 s");
}

}  // namespace
}  // namespace tilewright::train
