#include "worker/cli/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "common/base/result.h"
#include "common/contract/environment.h"
#include "tests/support/scoped_variable.h"

namespace tilewright::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A plan with these numbers of threads.
host::ProcessPlan plan(int threads, int max_threads) {
  host::ProcessPlan result;
  result.threads = threads;
  result.max_threads = max_threads;
  return result;
}

TEST(ThreadCount, IsThatOfThePlan) {
  EXPECT_EQ(thread_count(plan(8, 16), 0, "").threads, 8);
  EXPECT_EQ(thread_count(plan(8, 16), 0, "").note, "");
}

TEST(ThreadCount, IsThatOfOmpNumThreads) {
  for (const char* value : {"12", "12,2"}) {
    const ThreadCount count = thread_count(plan(8, 16), 0, value);
    EXPECT_EQ(count.threads, 12);
    EXPECT_EQ(count.note, "");
  }
  EXPECT_EQ(thread_count(plan(4, 8), 0, "8").threads, 8);
}

TEST(ThreadCount, IsAtMostTheAllowedCpus) {
  const ThreadCount count = thread_count(plan(2, 2), 0, "240");
  EXPECT_EQ(count.threads, 2);
  EXPECT_EQ(count.note,
            "OMP_NUM_THREADS: found 240, but this process may use 2 CPUs; using 2 threads");
  EXPECT_EQ(thread_count(plan(2, 4), 0, "8").note,
            "OMP_NUM_THREADS: found 8, but this process may use 4 CPUs; using 4 threads");
  EXPECT_EQ(thread_count(plan(1, 1), 0, "2").threads, 1);
  EXPECT_EQ(thread_count(plan(2, 2), 0, "99999999999").threads, 2);
}

TEST(ThreadCount, IsThatOfTheFlagBeforeOmpNumThreads) {
  EXPECT_EQ(thread_count(plan(2, 4), 3, "1").threads, 3);
  EXPECT_EQ(thread_count(plan(2, 4), 4, "all").note, "");
  const ThreadCount most = thread_count(plan(1, 2), 4096, "");
  EXPECT_EQ(most.threads, 2);
  EXPECT_EQ(most.note, "--threads: found 4096, but this process may use 2 CPUs; using 2 threads");
}

TEST(ThreadCount, SaysWhenTheValueIsNoCount) {
  for (const char* value : {"all", "0", "-1", "4x", ",4"}) {
    const ThreadCount count = thread_count(plan(8, 16), 0, value);
    EXPECT_EQ(count.threads, 8);
    EXPECT_THAT(count.note, HasSubstr(std::string("found \"") + value + "\", expected an integer"));
  }
}

TEST(IntegerVariable, IsWithinItsLimits) {
  const auto read = [](const std::string& text) {
    return integer_variable([&](const char*) { return text; }, "N", 1, 7, 1024);
  };
  EXPECT_EQ(read(""), 7);
  EXPECT_EQ(read("1024"), 1024);
  for (const auto& [text, found] : std::vector<std::pair<std::string, std::string>>{
           {"1025", "1025"}, {"0", "0"}, {"1\n", "1\\n"}}) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_EQ(failure.what(), "N: found \"" + found + "\", expected an integer from 1 to 1024");
    }
  }
}

TEST(LogLevel, IsThatOfPython) {
  EXPECT_EQ(log_level("").name, "info");
  EXPECT_EQ(log_level("INFO").name, "info");
  EXPECT_EQ(log_level("debug").name, "debug");
  EXPECT_EQ(log_level("WARNING").name, "warn");
  EXPECT_EQ(log_level("ERROR").name, "error");
  EXPECT_EQ(log_level("CRITICAL").name, "critical");
  EXPECT_EQ(log_level("INFO").note, "");
  EXPECT_EQ(log_level("loud").name, "info");
  EXPECT_THAT(log_level("loud").note, HasSubstr("LOGLEVEL: found \"loud\", expected DEBUG"));
}

GetVariable launched_at(const char* seconds) {
  return [seconds](const char* name) {
    return std::string(name) == env::kLaunchTime ? std::string(seconds) : std::string();
  };
}

TEST(ExpandArguments, UsesTheStartOfTheJob) {
  const testing::ScopedVariable zone("TZ", "UTC");
  tzset();
  const ExpandedArguments expanded = expand_arguments(
      {"--output_dir", "out_$(date +%Y%m%d_%H%M%S)", "$(date -u +%s)"}, launched_at("1764000123"));
  EXPECT_THAT(expanded.arguments, ElementsAre("--output_dir", "out_20251124_160203", "1764000123"));
  EXPECT_TRUE(expanded.dates);
}

TEST(ExpandArguments, UsesTheOutputDirectoryOfTheJob) {
  const auto variable = [](const char* name) {
    return std::string(name) == env::kOutputDir ? std::string("/disk/output_1") : std::string();
  };
  EXPECT_THAT(expand_arguments({"--output-dir", "/disk/output_$(date +%s)", "--do_train"}, variable)
                  .arguments.back(),
              "--output_dir=/disk/output_1");
  const std::vector<std::string> without_date = {"--output_dir=/other", "--run_name=$(date +%Y)"};
  EXPECT_EQ(expand_arguments(without_date, variable).arguments.size(), 2u);
  EXPECT_EQ(expand_arguments(without_date, variable).arguments.front(), "--output_dir=/other");
}

TEST(ExpandArguments, UsesTheClockWithoutIt) {
  // Not std::time(), whose coarse clock may still be in the second before.
  const auto clock = [] {
    return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now())
        .time_since_epoch()
        .count();
  };
  const auto before = clock();
  const std::string now = expand_arguments({"$(date +%s)"}, launched_at("")).arguments.front();
  EXPECT_GE(std::stoll(now), before);
  EXPECT_LE(std::stoll(now), clock());
}

TEST(ExpandArguments, LeavesOtherArguments) {
  const ExpandedArguments expanded = expand_arguments({"a", "$(b)"}, launched_at("no number"));
  EXPECT_THAT(expanded.arguments, ElementsAre("a", "$(b)"));
  EXPECT_FALSE(expanded.dates);
}

TEST(ParseArguments, ExpandTheHomeDirectory) {
  const auto variable = [](const char* name) {
    return std::string(name) == "HOME" ? std::string("/home/me") : std::string();
  };
  const std::vector<std::string> words = {"--output_dir=~/out"};
  EXPECT_EQ(parse_arguments(words, variable).settings().output_dir, "/home/me/out");
  EXPECT_THROW(parse_arguments(std::vector<std::string>{"--sede=1"}, variable), Failure);
}

TEST(ExpandArguments, RefusesAStartThatIsNoTime) {
  for (const char* value : {"yesterday", "-1", "99999999999999"}) {
    try {
      expand_arguments({"$(date)"}, launched_at(value));
      ADD_FAILURE() << value;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_THAT(failure.what(), HasSubstr("TILEWRIGHT_LAUNCH_TIME: found"));
    }
  }
}

}  // namespace
}  // namespace tilewright::cli
