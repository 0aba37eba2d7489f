// Folders that are complete or absent, also when a process dies in the middle.
#include "worker/checkpoint/atomic_directory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AtomicDirectoryTest : public ::testing::Test {
 protected:
  // Runs `work` in a process of its own that then dies without any clean-up; gives its id.
  static pid_t die_after(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the work failed";
    return child;
  }

  tilewright::testing::TemporaryDirectory folder_;
  std::filesystem::path target_ = folder_.path() / "target";
};

TEST_F(AtomicDirectoryTest, AppearsWholeOnCommit) {
  AtomicDirectory directory(target_);
  EXPECT_EQ(directory.aside(), folder_.path() / (".target.tmp-" + std::to_string(getpid())));
  put_file(directory.aside() / "a", "1");
  std::filesystem::create_directory(directory.aside() / "sub");
  put_file(directory.aside() / "sub/b", "2");
  EXPECT_FALSE(std::filesystem::exists(target_));
  directory.commit();
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("target"));
  EXPECT_EQ(testing::read_text(target_ / "a"), "1");
  EXPECT_EQ(testing::read_text(target_ / "sub/b"), "2");
}

TEST_F(AtomicDirectoryTest, TakesThePlaceOfAnOlderOne) {
  std::filesystem::create_directory(target_);
  put_file(target_ / "old", "1");
  {
    AtomicDirectory directory(target_ / "");  // a trailing slash is no other name
    put_file(directory.aside() / "new", "2");
    EXPECT_THAT(names_in(target_), ElementsAre("old"));
    directory.commit();
  }
  EXPECT_THAT(names_in(target_), ElementsAre("new"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("target"));
}

TEST_F(AtomicDirectoryTest, LeavesNothingWithoutACommit) {
  try {
    AtomicDirectory directory(target_);
    put_file(directory.aside() / "a", "1");
    throw std::runtime_error("the work fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(AtomicDirectoryTest, SaysWhyItCannotBeMade) {
  expect_failure([&] { AtomicDirectory{folder_.path() / "no/target"}; }, ExitCode::kOutput,
                 HasSubstr("cannot create the folder: No such file"));
  put_file(folder_.path() / "file", "");
  expect_failure([&] { AtomicDirectory{folder_.path() / "file/target"}; }, ExitCode::kOutput,
                 HasSubstr("Not a directory"));
}

TEST_F(AtomicDirectoryTest, OfAProcessThatDiedIsAbsentAndIsRemovedLater) {
  const pid_t dead = die_after([&] {
    auto* never_destroyed = new AtomicDirectory(target_);
    put_file(never_destroyed->aside() / "a", "1");
  });
  const std::string left = ".target.tmp-" + std::to_string(dead);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre(left));
  EXPECT_THAT(remove_stale_asides(folder_.path()), ElementsAre(left));
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(AtomicDirectoryTest, LeavesTheOldOneWholeWhenAProcessDiesBeforeItsCommit) {
  std::filesystem::create_directory(target_);
  put_file(target_ / "old", "1");
  die_after([&] {
    auto* never_destroyed = new AtomicDirectory(target_);
    put_file(never_destroyed->aside() / "new", "2");
  });
  EXPECT_THAT(names_in(target_), ElementsAre("old"));
  AtomicDirectory directory(target_);
  put_file(directory.aside() / "new", "2");
  directory.commit();
  EXPECT_THAT(names_in(target_), ElementsAre("new"));
}

TEST_F(AtomicDirectoryTest, KeepsWhatLivingProcessesHold) {
  AtomicDirectory directory(target_);
  put_file(directory.aside() / "a", "1");
  EXPECT_THAT(remove_stale_asides(folder_.path()), IsEmpty());
  directory.commit();
  EXPECT_EQ(testing::read_text(target_ / "a"), "1");
}

// In a container a restarted process often has the id of the one that died.
TEST_F(AtomicDirectoryTest, IsStaleByItsLockEvenWhenItsProcessIdLives) {
  const std::string left = ".target.tmp-" + std::to_string(getpid());
  std::filesystem::create_directory(folder_.path() / left);
  put_file(folder_.path() / left / "a", "1");
  EXPECT_THAT(remove_stale_asides(folder_.path()), ElementsAre(left));
}

TEST_F(AtomicDirectoryTest, IsNotTakenForOtherHiddenNames) {
  for (const char* name : {".target", ".tmp-1", ".target.tmp-", ".target.tmp-12x", "target.tmp-1",
                           ".target.tmp-99999999999999"}) {
    std::filesystem::create_directory(folder_.path() / name);
    EXPECT_FALSE(is_aside_name(name)) << name;
  }
  EXPECT_THAT(remove_stale_asides(folder_.path()), IsEmpty());
}

TEST_F(AtomicDirectoryTest, CanAddItsFilesToAFolderThatMustStay) {
  std::filesystem::create_directory(target_);
  put_file(target_ / "kept", "1");
  put_file(target_ / "main", "old");
  put_file(target_ / "other", "old");
  AtomicDirectory directory(target_ / "files");
  put_file(directory.aside() / "main", "new");
  put_file(directory.aside() / "other", "new");
  directory.commit_into(target_, "main");
  EXPECT_THAT(names_in(target_), ElementsAre("kept", "main", "other"));
  EXPECT_EQ(testing::read_text(target_ / "main"), "new");
  EXPECT_EQ(testing::read_text(target_ / "other"), "new");
}

TEST_F(AtomicDirectoryTest, AddsNoLastFileWhenAnotherCannotBePlaced) {
  std::filesystem::create_directories(target_ / "other/in the way");
  put_file(target_ / "main", "old");
  {
    AtomicDirectory directory(target_ / "files");
    put_file(directory.aside() / "main", "new");
    put_file(directory.aside() / "other", "new");
    expect_failure([&] { directory.commit_into(target_, "main"); }, ExitCode::kOutput,
                   HasSubstr("other: cannot rename into place"));
  }
  EXPECT_THAT(names_in(target_), ElementsAre("other"));
}

TEST_F(AtomicDirectoryTest, IsRemovedWhole) {
  std::filesystem::create_directories(target_ / "sub");
  put_file(target_ / "sub/a", "1");
  remove_directory_atomically(target_);
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
  expect_failure([&] { remove_directory_atomically(target_); }, ExitCode::kOutput,
                 HasSubstr("cannot rename aside"));
}

TEST_F(AtomicDirectoryTest, RenamesOnlyWhereNothingStands) {
  put_file(folder_.path() / "a", "1");
  put_file(folder_.path() / "b", "2");
  EXPECT_FALSE(rename_to_new(folder_.path() / "a", folder_.path() / "b"));
  EXPECT_TRUE(rename_to_new(folder_.path() / "a", folder_.path() / "c"));
  EXPECT_EQ(testing::read_text(folder_.path() / "b"), "2");
  EXPECT_EQ(testing::read_text(folder_.path() / "c"), "1");
}

}  // namespace
}  // namespace tilewright::checkpoint
