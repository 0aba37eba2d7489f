// Tests how long the final output is tried again.
#include "worker/train/output_retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "worker/train/checkpoint_retry.h"

namespace tilewright::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A write that fails `failures` times, and a wait that only records its length.
struct Attempts {
  int failures = 0;
  ExitCode code = ExitCode::kOutputUnavailable;
  bool stopped = false;
  int writes = 0;
  std::vector<Duration> waits = {};
  std::vector<std::string> warnings = {};

  void run() {
    retry_while_unavailable(
        [&] {
          if (++writes <= failures) throw Failure(code, "out: No space left on device");
        },
        {.wait = [&](Duration delay) { return waits.push_back(delay), !stopped; },
         .warn = [&](const std::string& message) { warnings.push_back(message); }});
  }
  ExitCode run_to_failure() {
    try {
      run();
    } catch (const Failure& failure) {
      return failure.code();
    }
    return ExitCode::kOk;
  }
};

TEST(OutputRetry, WaitsLongerEachTimeUntilTheWriteSucceeds) {
  Attempts attempts{.failures = 3};
  attempts.run();
  EXPECT_EQ(attempts.writes, 4);
  EXPECT_THAT(attempts.waits, ElementsAre(std::chrono::seconds(1), std::chrono::seconds(2),
                                          std::chrono::seconds(4)));
  EXPECT_THAT(attempts.warnings,
              ElementsAre(HasSubstr("No space left on device; trying again in 1 s"),
                          HasSubstr("in 2 s"), HasSubstr("in 4 s")));
}

TEST(OutputRetry, EndsAfterAMinuteWithARetryableCode) {
  Attempts attempts{.failures = 1000};
  const ExitCode code = attempts.run_to_failure();
  EXPECT_EQ(code, ExitCode::kOutputUnavailable);
  EXPECT_GE(static_cast<int>(code), 128);
  Duration waited{};
  for (const Duration wait : attempts.waits) waited += wait;
  EXPECT_EQ(waited, kOutputRetryTimeout);
  EXPECT_EQ(attempts.writes, static_cast<int>(attempts.waits.size()) + 1);
}

TEST(OutputRetry, EndsAtOnceIfTheFailureIsPermanentOrTheProcessMustStop) {
  Attempts superseded{.failures = 1, .code = ExitCode::kSuperseded};
  EXPECT_EQ(superseded.run_to_failure(), ExitCode::kSuperseded);
  EXPECT_TRUE(superseded.waits.empty());
  Attempts stopped{.failures = 1, .stopped = true};
  EXPECT_EQ(stopped.run_to_failure(), ExitCode::kOutputUnavailable);
  EXPECT_EQ(stopped.writes, 1);
}

TEST(CheckpointRetry, IsDueOneDelayAfterTheLastFailure) {
  CheckpointRetry retry;
  const MonotonicTime start{};
  EXPECT_FALSE(retry.due(start));
  retry.failed(start);
  EXPECT_FALSE(retry.due(start + CheckpointRetry::kDelay - std::chrono::seconds(1)));
  EXPECT_TRUE(retry.due(start + CheckpointRetry::kDelay));
  retry.failed(start + CheckpointRetry::kDelay);
  EXPECT_FALSE(retry.due(start + CheckpointRetry::kDelay + std::chrono::seconds(1)));
  retry.succeeded();
  EXPECT_FALSE(retry.due(start + 10 * CheckpointRetry::kDelay));
  EXPECT_EQ(retry.failures(), 2);
}

}  // namespace
}  // namespace tilewright::train
