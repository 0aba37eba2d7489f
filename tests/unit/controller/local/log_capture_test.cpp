// LogCapture and strip_terminal_codes().
#include "controller/local/log_capture.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

class LogCaptureTest : public ::testing::Test {
 protected:
  LogCaptureTest()
      : log_(LogCapture::open(file(), [this](std::string_view line) {
               lines_.emplace_back(line);
             }).or_throw()) {}
  std::filesystem::path file() const { return folder_.path() / "worker.log"; }
  std::string contents() const { return testing::read_text(file()); }

  testing::TemporaryDirectory folder_;
  std::vector<std::string> lines_;
  LogCapture log_;
};

TEST_F(LogCaptureTest, JoinsLinesThatArriveInParts) {
  log_.append("one\ntw");
  EXPECT_EQ(lines_, (std::vector<std::string>{"one"}));
  log_.append("o\r\n\nthree");
  EXPECT_EQ(lines_, (std::vector<std::string>{"one", "two", ""}));
  log_.finish();
  log_.finish();
  EXPECT_EQ(lines_.back(), "three");
  EXPECT_EQ(contents(), "one\ntwo\r\n\nthree\n") << "the file has the bytes unchanged";
}

TEST_F(LogCaptureTest, SplitsALongLine) {
  log_.append(std::string(3 * LogCapture::kMaxLineBytes + 5, 'x'));
  ASSERT_EQ(lines_.size(), 3U);
  EXPECT_EQ(lines_[0].size(), LogCapture::kMaxLineBytes);
  log_.append("y\nz\n");
  EXPECT_EQ(lines_[3], "xxxxxy");
  EXPECT_EQ(lines_[4], "z");
}

TEST_F(LogCaptureTest, KeepsTheLastLines) {
  EXPECT_EQ(log_.tail(), "");
  for (int i = 0; i < 20; ++i) log_.append(std::to_string(i) + "\n");
  EXPECT_EQ(log_.tail(), "10\n11\n12\n13\n14\n15\n16\n17\n18\n19");
  for (int i = 0; i < 3; ++i) log_.append(std::string(900, 'a' + static_cast<char>(i)) + "\n");
  EXPECT_EQ(log_.tail(), std::string(900, 'b') + "\n" + std::string(900, 'c')) << "at most 2 KiB";
}

TEST_F(LogCaptureTest, AppendsToTheSameFile) {
  log_.append("first run\n");
  LogCapture second = LogCapture::open(file(), [](std::string_view) {}).or_throw();
  second.append("second run\n");
  EXPECT_EQ(contents(), "first run\nsecond run\n");
}

TEST(LogCapture, NamesAFileThatItCannotWrite) {
  const auto log = LogCapture::open("/nonexistent/worker.log", [](std::string_view) {});
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().message.find("/nonexistent/worker.log"), std::string::npos);
}

TEST(StripTerminalCodes, StripsControlSequencesAndReplacesInvalidUtf8) {
  const std::pair<const char*, const char*> cases[] = {
      {"plain", "plain"},
      {"tab\tstays", "tab\tstays"},
      {"\033[31mred\033[0m", "red"},
      {"\033[2J\033[Hgone", "gone"},
      {"over\rwritten", "overwritten"},
      {"alert\a", "alert"},
      {"\033", ""},
      {"\033[", ""},
      {"grün 猫 🙂", "grün 猫 🙂"},
      {"bad \xff byte", "bad \xEF\xBF\xBD byte"},
      {"cut \xe7\x8c", "cut \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"overlong \xc0\xaf", "overlong \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"surrogate \xed\xa0\x80", "surrogate \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(strip_terminal_codes(text), expected);
}

}  // namespace
}  // namespace tilewright::local
