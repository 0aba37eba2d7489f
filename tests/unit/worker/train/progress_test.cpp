#include "worker/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tilewright::train {
namespace {

TEST(RateMeter, ReportsRatesAndEtaOverItsWindow) {
  RateMeter meter;
  MonotonicTime now{};
  meter.restart(now);
  StepReport report;
  report.total_steps = 100;
  report.examples = 32;
  report.tokens = 1600;
  report.flops = 2e9;
  report.exchange_seconds = 0.25;
  Rates rates;
  for (int step = 1; step <= 40; ++step) {
    now += std::chrono::milliseconds(step <= 20 ? 1000 : 500);
    report.hidden_exchange_seconds = step % 2 == 0 ? 0.125 : 0.25;
    report.step = step;
    rates = meter.add(report, now);
  }
  EXPECT_DOUBLE_EQ(rates.examples_per_second, 64);
  EXPECT_DOUBLE_EQ(rates.tokens_per_second, 3200);
  EXPECT_DOUBLE_EQ(rates.gflops, 4);
  EXPECT_DOUBLE_EQ(rates.eta_seconds, 30);
  EXPECT_DOUBLE_EQ(rates.exchange_seconds, 0.25);
  EXPECT_DOUBLE_EQ(rates.hidden_exchange_seconds, 0.1875);
}

TEST(DescribeExchange, HasMillisecondsAStep) {
  EXPECT_EQ(describe_exchange({.exchange_seconds = 0.1274, .hidden_exchange_seconds = 0.0904}),
            "exchange 127 ms a step, 90 hidden by backward");
  EXPECT_EQ(describe_exchange({.exchange_seconds = 0.00424, .hidden_exchange_seconds = 0}),
            "exchange 4.2 ms a step, 0.0 hidden by backward");
}

TEST(Describe, PutsEverythingOnOneLine) {
  StepReport report;
  report.step = 120;
  report.total_steps = 690;
  report.epoch = 1.04;
  report.loss = 0.53214;
  report.learning_rate = 8.3e-5;
  EXPECT_EQ(describe(report, {231.04, 12100, 410, 95}, 893),
            "step 120/690  epoch 1.04  loss 0.5321  231 examples/s  46 % of peak  ETA 1:35");
  EXPECT_EQ(describe(report, {23.04, 1210, 41, 3725}, 0),
            "step 120/690  epoch 1.04  loss 0.5321  23.0 examples/s  41 GFLOP/s  ETA 1:02:05");
}

TEST(Describe, LeavesRoomForTheTimestampIn120Columns) {
  StepReport report;
  report.step = report.total_steps = 99'999;
  report.epoch = 99.99;
  report.loss = 10.1234;
  EXPECT_LE(describe(report, {9999, 1e6, 9e4, 99 * 3600.0 + 3599}, 9e4).size(), 90U);
}

// The lines that the printer logs off a terminal in a training of `total` steps, whose losses are
// 1, 2, 3, ...
std::vector<std::string> logged_lines(ProgressOptions options, std::int64_t logging_steps,
                                      std::int64_t total) {
  Schedule schedule;
  schedule.logging_steps = logging_steps;
  schedule.steps_per_epoch = 4;
  schedule.total_steps = total;
  options.schedule = &schedule;
  std::ostringstream text;
  Logger logger("", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger.set_pattern("%v");
  ProgressPrinter printer(logger, options);
  StepReport report;
  report.total_steps = total;
  for (report.step = 1; report.step <= total; ++report.step) {
    report.loss = static_cast<double>(report.step);
    printer.show(report, {}, 100, monotonic_now());
  }
  std::vector<std::string> lines;
  std::istringstream stream(text.str());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::int64_t> logged_steps(const ProgressOptions& options, std::int64_t logging_steps,
                                       std::int64_t total) {
  std::vector<std::int64_t> steps;
  for (const std::string& line : logged_lines(options, logging_steps, total)) {
    steps.push_back(std::stoll(line.substr(line.find(' '))));
  }
  return steps;
}

// As the Trainer, whose log_history has the same means.
TEST(ProgressPrinter, LogsTheMeanLossSinceTheLineBefore) {
  EXPECT_THAT(logged_lines({.logging_first_step = true}, 4, 10),
              ::testing::ElementsAre(
                  ::testing::HasSubstr("loss 1.0000"), ::testing::HasSubstr("loss 3.0000"),
                  ::testing::HasSubstr("loss 6.5000"), ::testing::HasSubstr("loss 9.5000")));
}

TEST(ProgressPrinter, LogsAtLoggingStepsAndAtTheLastStep) {
  EXPECT_EQ(logged_steps({}, 10, 25), (std::vector<std::int64_t>{10, 20, 25}));
  EXPECT_EQ(logged_steps({}, 1, 3), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(logged_steps({.logging_first_step = true}, 10, 20),
            (std::vector<std::int64_t>{1, 10, 20}));
  EXPECT_EQ(logged_steps({.logging_strategy = "epoch"}, 1, 10),
            (std::vector<std::int64_t>{4, 8, 10}));
  EXPECT_EQ(logged_steps({.logging_strategy = "no"}, 1, 10), (std::vector<std::int64_t>{10}));
}

}  // namespace
}  // namespace tilewright::train
