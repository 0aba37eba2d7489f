// Tests which job may write to an output directory.
#include "worker/checkpoint/output_ownership.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/checkpoint.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OutputOwnershipTest : public ::testing::Test {
 protected:
  void expect_refused(const std::string& uid, const std::string& part) {
    const auto before =
        std::filesystem::exists(output_) ? names_in(output_) : std::vector<std::string>{};
    expect_failure(
        [&] {
          acquire_output_dir(output_, {uid, {}});
        },
        ExitCode::kOutput, AllOf(HasSubstr(output_.string()), HasSubstr(part)));
    if (std::filesystem::exists(output_)) {
      expect_failure(
          [&] {
            check_output_dir(output_, {uid, {}});
          },
          ExitCode::kOutput, AllOf(HasSubstr(output_.string()), HasSubstr(part)));
      EXPECT_EQ(names_in(output_), before);
    }
  }
  // What check_output_dir() finds just before the directory is acquired.
  OutputOwnership acquire(const std::string& uid, bool overwrite = false) {
    const OutputRequest request{uid, {}, overwrite};
    const OutputOwnership found = check_output_dir(output_, request);
    acquire_output_dir(output_, request);
    return found;
  }
  static void write_checkpoint_of_step(const OutputWriter& writer, std::int64_t step) {
    CheckpointContent content;
    content.state.global_step = step;
    write_checkpoint(writer, content);
  }
  std::uint64_t epoch_in_marker() const {
    return read_marker(output_, ExitCode::kOutput)->writer.epoch;
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path output_ = directory_.path() / "a/b/output";
};

TEST_F(OutputOwnershipTest, CreatesANewDirectoryAndResumesInIt) {
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kNew);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
}

TEST_F(OutputOwnershipTest, AcceptsAnEmptyDirectoryAndANewVolume) {
  std::filesystem::create_directories(output_ / "lost+found");
  EXPECT_EQ(check_output_dir(output_ / "", {"uid-1", {}}), OutputOwnership::kNew);
  acquire_output_dir(output_ / "", {"uid-1", {}});
}

// A restarted worker still has the argument --overwrite_output_dir.
TEST_F(OutputOwnershipTest, ResumesItsDirectoryEvenIfItMayOverwrite) {
  write_checkpoint_of_step(acquire_output_dir(output_, {"uid-1", {}, true}), 5);
  EXPECT_EQ(acquire("uid-1", true), OutputOwnership::kResumed);
  EXPECT_NE(latest_valid_checkpoint(output_).path, std::nullopt);
}

TEST_F(OutputOwnershipTest, RefusesAnotherJobAndForeignContent) {
  acquire("uid-1");
  expect_refused("uid-2", "belongs to job \"uid-1\", but this is job \"uid-2\"; use another");
  expect_refused("flags-2",
                 "job \"flags-2\", which has other flags, data, starting weights or another number "
                 "of processes (see --nominal_workers); use");
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
  std::filesystem::remove(output_ / kOwnershipMarkerFile);
  write_file(output_ / "thesis.txt", "");
  expect_refused("uid-1", "is not empty (it contains thesis.txt) and does not belong to a job");
}

// What the same command without --overwrite_output_dir continues.
TEST_F(OutputOwnershipTest, AJobContinuesItsLaunch) {
  EXPECT_EQ(uid_to_continue(output_, "flags-1"), "flags-1") << "there is no directory";
  const std::string launch = uid_of_launch("flags-1", "agent-1b2c");
  acquire(launch);
  EXPECT_EQ(uid_to_continue(output_, "flags-1"), launch);
  EXPECT_EQ(acquire(launch), OutputOwnership::kResumed);
  EXPECT_EQ(uid_to_continue(output_, "flags-2"), "flags-2");
  EXPECT_EQ(uid_to_continue(output_, "flags-"), "flags-");
  acquire("run-7.5", true);
  EXPECT_EQ(uid_to_continue(output_, "run-7"), "run-7") << "the owner has another --rdzv_id";
  EXPECT_EQ(acquire(uid_of_launch("flags-1", "agent-3d4e"), true), OutputOwnership::kOverwritten);
}

TEST_F(OutputOwnershipTest, CountsTheEpochsOfAProcessWithoutACoordinator) {
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    acquire("uid-1");
    EXPECT_EQ(epoch_in_marker(), epoch);
  }
  acquire("uid-2", true);
  EXPECT_EQ(epoch_in_marker(), 1u);
}

TEST_F(OutputOwnershipTest, RefusesAnEpochThatIsNotLater) {
  own(output_, 5);
  for (const std::uint64_t epoch : {4u, 5u}) {
    expect_failure(
        [&] {
          check_output_dir(output_, {"uid-1", epoch});
        },
        ExitCode::kSuperseded,
        HasSubstr(fmt::format("in membership epoch 5, but this is epoch {}", epoch)));
    expect_failure([&] { own(output_, epoch); }, ExitCode::kSuperseded, HasSubstr("epoch 5"));
    try {
      check_output_dir(output_, {"uid-1", epoch});
    } catch (const LaterEpochFailure& failure) {
      EXPECT_EQ(failure.epoch(), 5u);
    }
  }
  own(output_, 6);
  EXPECT_EQ(epoch_in_marker(), 6u);
}

// Earlier versions wrote only the job's UID.
TEST_F(OutputOwnershipTest, AcceptsAMarkerWithoutAnEpoch) {
  std::filesystem::create_directories(output_);
  write_file(output_ / kOwnershipMarkerFile, "{\"job_uid\": \"uid-1\"}");
  EXPECT_EQ(check_output_dir(output_, {"uid-1", 1}), OutputOwnership::kResumed);
  own(output_, 1);
  EXPECT_EQ(epoch_in_marker(), 1u);
}

TEST_F(OutputOwnershipTest, OverwritesOnlyFilesOfThisProgram) {
  write_checkpoint_of_step(own(output_), 5);
  write_file(output_ / "thesis.txt", "");
  std::filesystem::create_directory(output_ / "checkpoint-7");  // of another program
  EXPECT_EQ(acquire("uid-2", true), OutputOwnership::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile, "checkpoint-7", "thesis.txt"));
  EXPECT_EQ(acquire("uid-2"), OutputOwnership::kResumed);
  expect_refused("uid-1", "belongs to job \"uid-2\"");
}

TEST_F(OutputOwnershipTest, KeepsTheCheckpointsOfAnOverwrittenDirectoryIfAsked) {
  write_checkpoint_of_step(acquire_output_dir(output_, {"uid-1", {}}), 5);
  EXPECT_TRUE(is_checkpoint_of(output_ / "checkpoint-5", output_));
  EXPECT_TRUE(is_checkpoint_of(output_ / "checkpoint-5/", output_));
  EXPECT_FALSE(is_checkpoint_of(output_ / "checkpoint-6", output_));
  EXPECT_FALSE(is_checkpoint_of(output_, output_.parent_path()));
  EXPECT_FALSE(is_checkpoint_of("", output_));
  const OutputRequest request{"uid-2", {}, true, true};
  EXPECT_EQ(check_output_dir(output_, request), OutputOwnership::kOverwritten);
  acquire_output_dir(output_, request);
  EXPECT_EQ(list_checkpoints(output_).size(), 1u);
  EXPECT_EQ(check_output_dir(output_, request), OutputOwnership::kResumed);
}

TEST_F(OutputOwnershipTest, IsFreeForAnotherJobAfterARelease) {
  std::filesystem::create_directories(output_ / "lost+found");
  EXPECT_TRUE(release_empty_output_dir(own(output_)));
  EXPECT_EQ(acquire("uid-2"), OutputOwnership::kNew);
}

TEST_F(OutputOwnershipTest, IsNotReleasedWithContentOrByAnEarlierWriter) {
  const OutputWriter earlier = own(output_, 1);
  const OutputWriter writer = own(output_, 2);
  expect_failure([&] { release_empty_output_dir(earlier); }, ExitCode::kSuperseded,
                 HasSubstr("no longer writes there"));
  write_checkpoint_of_step(writer, 5);
  EXPECT_FALSE(release_empty_output_dir(writer));
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
}

TEST_F(OutputOwnershipTest, IsNotUsableAsALinkToNothing) {
  std::filesystem::create_symlink(directory_.path() / "missing", directory_.path() / "link");
  for (const char* name : {"link", "link/output"}) {
    expect_failure([&] { require_usable_output_dir(directory_.path() / name); }, ExitCode::kOutput,
                   HasSubstr("link: is a symbolic link to " + directory_.path().string() +
                             "/missing, which does not exist, expected a directory"));
  }
}

TEST_F(OutputOwnershipTest, IsUsableIfItIsMissingOrAWritableDirectory) {
  require_usable_output_dir(output_);
  std::filesystem::create_directories(output_);
  require_usable_output_dir(output_);
  std::ofstream(output_ / "file") << "";
  expect_failure([&] { require_usable_output_dir(output_ / "file"); }, ExitCode::kOutput,
                 HasSubstr("is a file, expected a directory"));
}

TEST_F(OutputOwnershipTest, IsNotUsableIfItCannotBeCreated) {
  std::filesystem::create_directories(output_);
  write_file(output_ / "file", "");
  expect_failure([&] { require_usable_output_dir(output_ / "file" / "a" / "b"); },
                 ExitCode::kOutput, HasSubstr("file: is a file, expected a directory"));
  require_usable_output_dir(output_ / "a" / "b");
  EXPECT_THAT(names_in(output_), ElementsAre("file")) << "creates nothing";
}

TEST_F(OutputOwnershipTest, OverwritesForeignContentWithoutAMarker) {
  write_checkpoint_of_step(own(output_), 5);
  write_file(output_ / "thesis.txt", "");
  std::filesystem::remove(output_ / kOwnershipMarkerFile);
  EXPECT_EQ(acquire("uid-1", true), OutputOwnership::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile, "thesis.txt"));
}

// A process that dies while it removes another job's checkpoints must not resume from the others.
TEST_F(OutputOwnershipTest, ContinuesToOverwriteAfterARestart) {
  write_checkpoint_of_step(own(output_), 5);
  write_file(output_ / kOwnershipMarkerFile,
             "{\"job_uid\": \"uid-2\", \"epoch\": 1, \"overwriting\": true}");
  EXPECT_EQ(acquire("uid-2"), OutputOwnership::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
  EXPECT_EQ(acquire("uid-2"), OutputOwnership::kResumed);
}

TEST_F(OutputOwnershipTest, RefusesAMarkerItCannotRead) {
  std::filesystem::create_directories(output_);
  write_file(output_ / kOwnershipMarkerFile, "{\"job_uid\": 7}");
  expect_refused("uid-1", "job_uid is 7, expected a string");
  write_file(output_ / kOwnershipMarkerFile, "{");
  expect_refused("uid-1", "is not valid JSON");
  EXPECT_EQ(acquire("uid-1", true), OutputOwnership::kOverwritten);
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
}

TEST_F(OutputOwnershipTest, IsCheckedWithoutModifyingAnything) {
  EXPECT_EQ(check_output_dir(output_, {"uid-1", {}}), OutputOwnership::kNew);
  EXPECT_THAT(names_in(directory_.path()), IsEmpty());
  write_checkpoint_of_step(own(output_), 5);
  EXPECT_EQ(check_output_dir(output_, {"uid-1", {}}), OutputOwnership::kResumed);
  EXPECT_EQ(check_output_dir(output_, {"uid-2", {}, true}), OutputOwnership::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile, "checkpoint-5"));
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
}

TEST_F(OutputOwnershipTest, LeavesNoDirectoriesIfItCannotWrite) {
  write_file(directory_.path() / "a", "a file in the way");
  expect_refused("uid-1", "cannot create the output directory");
  EXPECT_THAT(names_in(directory_.path()), ElementsAre("a"));
  std::filesystem::remove(directory_.path() / "a");
  std::filesystem::create_directories(output_.parent_path());
  write_file(output_, "a file in its place");
  expect_failure([&] { own(output_); }, ExitCode::kOutput,
                 HasSubstr("is a file, expected a directory"));
}

// Runs in a child process that is not root, because root may write anywhere.
TEST_F(OutputOwnershipTest, RefusesAParentWithoutWritePermission) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(3);
    try {
      own(output_);
      _exit(2);
    } catch (const Failure& failure) {
      const std::string message = failure.what();
      const bool matches = message.find(output_.string() +
                                        ": cannot create the output directory: "
                                        "Permission denied") == 0;
      _exit(matches && failure.code() == ExitCode::kOutput ? 0 : 1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(names_in(directory_.path()), IsEmpty());
}

TEST_F(OutputOwnershipTest, RemovesStagingFilesOfEndedWriters) {
  acquire("uid-1");
  const std::string name = std::string(kOwnershipMarkerFile) + ".tmp-0123456789abcdef";
  std::filesystem::copy(output_ / kOwnershipMarkerFile, output_ / name);
  EXPECT_EQ(acquire("uid-1"), OutputOwnership::kResumed);
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
}

TEST_F(OutputOwnershipTest, IsAcquiredByExactlyOneOfSeveralJobs) {
  for (int round = 0; round < 20; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          own(output_, {}, "uid-" + std::to_string(i));
          _exit(0);
        } catch (const Failure& failure) {
          _exit(failure.code() == ExitCode::kOutput ? 1 : 2);
        }
      }
      children.push_back(child);
    }
    std::vector<int> outcomes;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      outcomes.push_back(WEXITSTATUS(status));
    }
    std::sort(outcomes.begin(), outcomes.end());
    EXPECT_THAT(outcomes, ElementsAre(0, 1, 1, 1));
    EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
    std::filesystem::remove_all(directory_.path() / "a");
  }
}

}  // namespace
}  // namespace tilewright::checkpoint
