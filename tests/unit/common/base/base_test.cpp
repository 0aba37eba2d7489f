#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/random.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

TEST(Sha256, MatchesTheFipsTestVector) {  // FIPS 180-4, "abc"
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Files, RoundTripAndLeaveNoTemporaryFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "a.txt";
  ASSERT_TRUE(write_file_atomically(path, "first").ok());
  ASSERT_TRUE(write_file_atomically(path, "second").ok());
  EXPECT_EQ(read_file(path, 100, ExitCode::kData).value(), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Files, NameTheMissingOrOversizedFile) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "a.txt";
  const auto missing = read_file(path, 100, ExitCode::kData);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kData);
  EXPECT_NE(missing.error().message.find("a.txt: cannot open: No such file"), std::string::npos);
  ASSERT_TRUE(write_file_atomically(path, std::string(101, 'x')).ok());
  EXPECT_NE(read_file(path, 100, ExitCode::kData).error().message.find("larger than 100 bytes"),
            std::string::npos);
  EXPECT_FALSE(read_file(directory.path(), 100, ExitCode::kData).ok());
}

TEST(Files, FailedWriteReturnsAnOutputError) {
  const testing::TemporaryDirectory directory;
  const auto status = write_file_atomically(directory.path() / "none" / "a.txt", "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ExitCode::kOutput);
}

TEST(Result, OrThrowThrowsFailure) {
  Result<int> bad(Error{ExitCode::kData, "line 3: found 7"});
  try {
    std::move(bad).or_throw();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    EXPECT_STREQ(failure.what(), "line 3: found 7");
  }
  EXPECT_EQ(Result<int>(4).or_throw(), 4);
}

TEST(Random, UuidsHaveTheirVersionAndDiffer) {
  const std::string uuid = random_uuid();
  EXPECT_THAT(uuid, ::testing::MatchesRegex(
                        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(uuid, random_uuid());
}

TEST(Clock, FormatsDurations) {
  EXPECT_EQ(format_duration(std::chrono::seconds(3725)), "1 h 02 min");
  EXPECT_EQ(format_duration(std::chrono::seconds(200)), "3 min 20 s");
}

}  // namespace
}  // namespace tilewright
