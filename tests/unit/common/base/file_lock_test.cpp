#include "common/base/file_lock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "common/base/result.h"
#include "tests/support/hidden_system_call.h"
#include "tests/support/paths.h"

namespace tilewright {
namespace {

class FileLockTest : public ::testing::Test {
 protected:
  const testing::TemporaryDirectory folder_;
  const std::filesystem::path path_ = folder_.path() / "lock";
};

TEST_F(FileLockTest, IsWaitedForUntilItIsReleased) {
  std::optional<FileLock> held(std::in_place, path_, [] { return false; });
  EXPECT_EQ(held->state(), FileLock::State::kLocked);
  int attempts = 0;
  const FileLock next(path_, [&] {
    if (++attempts == 3) held.reset();
    return true;
  });
  EXPECT_EQ(next.state(), FileLock::State::kLocked);
  EXPECT_EQ(attempts, 3);
}

TEST_F(FileLockTest, IsGivenUpOnRequest) {
  const FileLock held(path_, [] { return false; });
  int attempts = 0;
  const FileLock next(path_, [&] { return ++attempts < 3; });
  EXPECT_EQ(next.state(), FileLock::State::kGivenUp);
  EXPECT_EQ(attempts, 3);
}

TEST_F(FileLockTest, IsUnsupportedOnAFileSystemWithoutLocks) {
  const auto exit_with_support = [&] {
    if (!testing::hide_system_call(SYS_flock)) _exit(1);
    const FileLock lock(path_, [] { return false; });
    _exit(lock.state() == FileLock::State::kUnsupported ? 0 : 2);
  };
  EXPECT_EXIT(exit_with_support(), ::testing::ExitedWithCode(0), "");
}

TEST_F(FileLockTest, CreatesNoFileThroughALink) {
  std::filesystem::create_symlink("elsewhere", path_);
  EXPECT_THROW(FileLock(path_, [] { return false; }), Failure);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "elsewhere"));
}

TEST_F(FileLockTest, AMissingDirectoryIsAFailure) {
  try {
    const FileLock lock(folder_.path() / "missing/lock", [] { return false; });
    ADD_FAILURE() << "locked";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kOutput);
    EXPECT_EQ(failure.what(), (folder_.path() / "missing/lock").string() +
                                  ": cannot create the lock: No such file or directory");
  }
}

}  // namespace
}  // namespace tilewright
