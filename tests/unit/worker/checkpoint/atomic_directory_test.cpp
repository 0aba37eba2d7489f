// Tests that a directory is complete or absent, even if the writing process dies.
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
using ::testing::StartsWith;

class AtomicDirectoryTest : public ::testing::Test {
 protected:
  // Runs `work` in a child process that then dies without clean-up.
  static void die_after(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the work failed";
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path output_ = directory_.path();
  OutputWriter writer_ = own(output_);
  std::filesystem::path target_ = output_ / "target";
};

TEST_F(AtomicDirectoryTest, AppearsCompleteOnCommit) {
  {
    AtomicDirectory directory(writer_, "target");
    EXPECT_THAT(content_of(output_), ElementsAre(StartsWith(".target.tmp-")));
    directory.fill([](const auto& folder) {
      write_file(folder / "a", "1");
      std::filesystem::create_directory(folder / "sub");
      write_file(folder / "sub/b", "2");
    });
    EXPECT_FALSE(std::filesystem::exists(target_));
    directory.commit();
  }
  EXPECT_THAT(content_of(output_), ElementsAre("target"));
  EXPECT_THAT(names_in(target_), ElementsAre("a", "sub"));
  EXPECT_EQ(testing::read_text(target_ / "a"), "1");
  EXPECT_EQ(testing::read_text(target_ / "sub/b"), "2");
}

TEST_F(AtomicDirectoryTest, ReplacesAnOlderOne) {
  std::filesystem::create_directory(target_);
  write_file(target_ / "old", "1");
  {
    AtomicDirectory directory(writer_, "target");
    directory.fill([](const auto& folder) { write_file(folder / "new", "2"); });
    EXPECT_THAT(names_in(target_), ElementsAre("old"));
    directory.commit();
  }
  EXPECT_THAT(names_in(target_), ElementsAre("new"));
  EXPECT_THAT(content_of(output_), ElementsAre("target"));
}

TEST_F(AtomicDirectoryTest, LeavesNoFilesWithoutACommit) {
  try {
    AtomicDirectory directory(writer_, "target");
    directory.fill([](const auto& folder) { write_file(folder / "a", "1"); });
    throw std::runtime_error("the work fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(content_of(output_), IsEmpty());
}

// As when a newer owner removes the files while they are listed.
TEST_F(AtomicDirectoryTest, ReportsThatItsLastFileIsMissing) {
  AtomicDirectory directory(writer_, "target");
  directory.fill([](const auto& folder) { write_file(folder / "a", "1"); });
  expect_failure([&] { directory.commit_files("last"); }, ExitCode::kOutput,
                 HasSubstr("last: cannot find: No such file"));
}

TEST_F(AtomicDirectoryTest, ReportsWhyItCannotBeCreated) {
  const auto create_in = [&](const char* path) {
    const OutputWriter elsewhere(output_ / path, writer_.writer());
    AtomicDirectory(elsewhere, "target");
  };
  expect_failure([&] { create_in("no"); }, ExitCode::kOutput,
                 HasSubstr("cannot create the directory: No such file"));
  write_file(output_ / "file", "");
  expect_failure([&] { create_in("file"); }, ExitCode::kOutput, HasSubstr("Not a directory"));
}

TEST_F(AtomicDirectoryTest, IsAbsentIfItsProcessDiesAndIsRemovedByTheNextWriter) {
  die_after([&] {
    auto* never_destroyed = new AtomicDirectory(writer_, "target");
    never_destroyed->fill([](const auto& folder) { write_file(folder / "a", "1"); });
  });
  EXPECT_THAT(content_of(output_), ElementsAre(StartsWith(".target.tmp-")));
  own(output_);
  EXPECT_THAT(content_of(output_), IsEmpty());
}

TEST_F(AtomicDirectoryTest, KeepsTheOldOneIfAProcessDiesBeforeItsCommit) {
  std::filesystem::create_directory(target_);
  write_file(target_ / "old", "1");
  die_after([&] {
    auto* never_destroyed = new AtomicDirectory(writer_, "target");
    never_destroyed->fill([](const auto& folder) { write_file(folder / "new", "2"); });
  });
  EXPECT_THAT(names_in(target_), ElementsAre("old"));
  AtomicDirectory directory(writer_, "target");
  directory.fill([](const auto& folder) { write_file(folder / "new", "2"); });
  directory.commit();
  EXPECT_THAT(names_in(target_), ElementsAre("new"));
}

TEST_F(AtomicDirectoryTest, CanAddItsFilesToTheOutputDirectory) {
  write_file(output_ / "kept", "1");
  write_file(output_ / "main", "old");
  write_file(output_ / "other", "old");
  {
    AtomicDirectory directory(writer_, "files");
    directory.fill([](const auto& folder) {
      write_file(folder / "main", "new");
      write_file(folder / "other", "new");
    });
    directory.commit_files("main");
  }
  EXPECT_THAT(content_of(output_), ElementsAre("kept", "main", "other"));
  EXPECT_EQ(testing::read_text(output_ / "main"), "new");
  EXPECT_EQ(testing::read_text(output_ / "other"), "new");
}

TEST_F(AtomicDirectoryTest, DoesNotMoveTheLastFileIfAnotherCannotBeMoved) {
  std::filesystem::create_directories(output_ / "other/in the way");
  write_file(output_ / "main", "old");
  {
    AtomicDirectory directory(writer_, "files");
    directory.fill([](const auto& folder) {
      write_file(folder / "main", "new");
      write_file(folder / "other", "new");
    });
    expect_failure([&] { directory.commit_files("main"); }, ExitCode::kOutput,
                   HasSubstr("other: cannot rename into place"));
  }
  EXPECT_THAT(content_of(output_), ElementsAre("other"));
}

TEST_F(AtomicDirectoryTest, IsRemovedCompletely) {
  std::filesystem::create_directories(target_ / "sub");
  write_file(target_ / "sub/a", "1");
  remove_atomically(writer_, "target");
  EXPECT_THAT(content_of(output_), IsEmpty());
  expect_failure([&] { remove_atomically(writer_, "target"); }, ExitCode::kOutput,
                 HasSubstr("cannot move to the staging directory"));
}

}  // namespace
}  // namespace tilewright::checkpoint
