#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

TEST(Sha256, AgreesWithTheStandardsExample) {  // FIPS 180-4, "abc"
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Files, ReadsBackWhatWasWrittenAndLeavesNothingBeside) {
  const testing::TemporaryDirectory folder;
  const auto path = folder.path() / "a.txt";
  ASSERT_TRUE(write_file_atomically(path, "first").ok());
  ASSERT_TRUE(write_file_atomically(path, "second").ok());
  EXPECT_EQ(read_file(path, 100, ExitCode::kData).value(), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, SayWhichFileIsMissingOrTooLarge) {
  const testing::TemporaryDirectory folder;
  const auto path = folder.path() / "a.txt";
  const auto missing = read_file(path, 100, ExitCode::kData);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ExitCode::kData);
  EXPECT_NE(missing.error().message.find("a.txt: cannot open: No such file"), std::string::npos);
  ASSERT_TRUE(write_file_atomically(path, std::string(101, 'x')).ok());
  EXPECT_NE(read_file(path, 100, ExitCode::kData).error().message.find("larger than the 100 bytes"),
            std::string::npos);
  EXPECT_FALSE(read_file(folder.path(), 100, ExitCode::kData).ok());
}

TEST(Files, AWriteThatCannotBeDoneLeavesTheOldContent) {
  const testing::TemporaryDirectory folder;
  const auto status = write_file_atomically(folder.path() / "none" / "a.txt", "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ExitCode::kOutput);
}

TEST(Result, ThrowsItsErrorAsAFailure) {
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

TEST(Clock, WritesTimesAsKubernetesDoes) {
  EXPECT_EQ(to_rfc3339(WallTime(std::chrono::seconds(951782400))), "2000-02-29T00:00:00Z");
  EXPECT_EQ(to_words(std::chrono::seconds(3725)), "1 h 02 min");
  EXPECT_EQ(to_words(std::chrono::seconds(200)), "3 min 20 s");
}

}  // namespace
}  // namespace tilewright
