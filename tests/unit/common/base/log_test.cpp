// parse_log_line() parses the lines that make_logger() writes.
#include "common/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tilewright {
namespace {

TEST(Log, ParsesTheLinesThatTheLoggerWrites) {
  const std::pair<const char*, spdlog::level::level_enum> cases[] = {
      {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
      {"info", spdlog::level::info},   {"warn", spdlog::level::warn},
      {"error", spdlog::level::err},
  };
  const auto log = make_logger("trace");
  for (const auto& [name, level] : cases) {
    ::testing::internal::CaptureStderr();
    log->log(level, "data: 642 examples");
    std::string line = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(line.ends_with('\n')) << line;
    line.pop_back();
    const auto parsed = parse_log_line(line);
    ASSERT_TRUE(parsed) << line;
    EXPECT_EQ(parsed->level, level) << name;
    EXPECT_EQ(parsed->message, "data: 642 examples");
  }
}

TEST(Log, AMessageIsOneLine) {
  const auto log = make_logger("info");
  ::testing::internal::CaptureStderr();
  log->info("worker 1 left: {}", "x\n2026-11-22T19:42:57.977 error all is lost\x1b[31m");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_TRUE(text.ends_with("left: x\\n2026-11-22T19:42:57.977 error all is lost\\x1b[31m\n"))
      << text;
}

TEST(Log, WritesOnlyLinesOfItsLevelAndAbove) {
  const auto log = make_logger("warn");
  ::testing::internal::CaptureStderr();
  log->info("hidden");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Log, ParsesALineWithTheAgentsPrefix) {
  const auto parsed = parse_log_line("[worker 0.1] 2026-11-22T19:42:57.977 warning slow disk");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->level, spdlog::level::warn);
  EXPECT_EQ(parsed->message, "slow disk");
}

TEST(Log, ParsesNoOtherText) {
  for (const char* line :
       {"", "hello", "info hello", "[worker 0.1] hello", "[", "2026-11-22T19:42:57.977",
        "2026-11-22T19:42:57.977 info", "2026-11-22T19:42:57.977 notice text",
        "2026-11-22 19:42:57.977 info text", "2026-11-22T19:42:57.97x info text"}) {
    EXPECT_FALSE(parse_log_line(line)) << line;
  }
}

}  // namespace
}  // namespace tilewright
