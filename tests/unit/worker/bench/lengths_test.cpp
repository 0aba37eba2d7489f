#include "worker/bench/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "common/base/result.h"
#include "tests/support/paths.h"

namespace tilewright::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class ReadLengths : public ::testing::Test {
 protected:
  std::vector<std::int32_t> read(const std::string& content) {
    std::ofstream(path()) << content;
    return read_lengths(path());
  }
  // The message without the path.
  std::string error_of(const std::string& content) {
    try {
      read(content);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      const std::string message = failure.what();
      EXPECT_TRUE(message.starts_with(path())) << message;
      return message.substr(path().size());
    }
    return "no error";
  }
  std::string path() const { return (folder_.path() / "lengths").string(); }

  testing::TemporaryDirectory folder_;
};

TEST_F(ReadLengths, ReadsOneNumberPerLine) {
  EXPECT_THAT(read("53\n1\n512\n"), ElementsAre(53, 1, 512));
  EXPECT_THAT(read("7\r\n8"), ElementsAre(7, 8)) << "line ends of Windows, no last line end";
}

TEST_F(ReadLengths, NamesTheLineAndWhatItHolds) {
  const std::string expected = ", expected a number of tokens from 1 to 512";
  EXPECT_EQ(error_of("12\n0\n"), ":2: found \"0\"" + expected);
  EXPECT_EQ(error_of("513\n"), ":1: found \"513\"" + expected);
  EXPECT_EQ(error_of("-3\n"), ":1: found \"-3\"" + expected);
  EXPECT_EQ(error_of("1\n\n2\n"), ":2: found \"\"" + expected);
  EXPECT_EQ(error_of("12 tokens\n"), ":1: found \"12 tokens\"" + expected);
  EXPECT_EQ(error_of("99999999999\n"), ":1: found \"99999999999\"" + expected);
  EXPECT_EQ(error_of("\x1b[31m\n"), ":1: found \"\\x1b[31m\"" + expected);
  EXPECT_EQ(error_of(std::string(1000, 'x')),
            ":1: found \"" + std::string(100, 'x') + "...\"" + expected);
}

TEST_F(ReadLengths, RefusesAnEmptyFile) {
  EXPECT_EQ(error_of(""), ": found an empty file, expected one number of tokens per line");
}

TEST_F(ReadLengths, RefusesAMissingFileWithTheExitCodeOfTheCommandLine) {
  try {
    read_lengths(path());
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kUsage);
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("No such file"));
  }
}

TEST(SampleLengths, TakesEachLengthOnceIfThereAreAsMany) {
  EXPECT_THAT(sample_lengths({40, 10, 30, 20}, 4), UnorderedElementsAre(10, 20, 30, 40));
}

TEST(SampleLengths, TakesTheMiddleOfEqualParts) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t length = 100; length >= 1; --length) lengths.push_back(length);
  EXPECT_THAT(sample_lengths(lengths, 1), ElementsAre(51));
  EXPECT_THAT(sample_lengths(lengths, 4), UnorderedElementsAre(13, 38, 63, 88));
}

TEST(SampleLengths, RepeatsLengthsForALargerBatch) {
  EXPECT_THAT(sample_lengths({5, 9}, 6), UnorderedElementsAre(5, 5, 5, 9, 9, 9));
}

TEST(SampleLengths, ShufflesTheSameWayEveryTime) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t length = 1; length <= 64; ++length) lengths.push_back(length);
  const std::vector<std::int32_t> batch = sample_lengths(lengths, 64);
  EXPECT_EQ(batch, sample_lengths(lengths, 64));
  EXPECT_FALSE(std::is_sorted(batch.begin(), batch.end()));
}

}  // namespace
}  // namespace tilewright::bench
