// Who may write into an output folder.
#include "worker/checkpoint/output_claim.h"

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

class OutputClaim : public ::testing::Test {
 protected:
  void expect_refused(const std::string& uid, const std::string& part) {
    const auto before =
        std::filesystem::exists(output_) ? names_in(output_) : std::vector<std::string>{};
    expect_failure([&] { claim_output(output_, uid, false); }, ExitCode::kOutput,
                   AllOf(HasSubstr(output_.string()), HasSubstr(part)));
    if (std::filesystem::exists(output_)) {
      expect_failure([&] { examine_output(output_, uid, false); }, ExitCode::kOutput,
                     AllOf(HasSubstr(output_.string()), HasSubstr(part)));
      EXPECT_EQ(names_in(output_), before);
    }
  }
  void write_checkpoint_of_step(std::int64_t step) {
    CheckpointContent content;
    content.state.global_step = step;
    write_checkpoint(output_, content);
  }

  tilewright::testing::TemporaryDirectory folder_;
  std::filesystem::path output_ = folder_.path() / "a/b/output";
};

TEST_F(OutputClaim, MakesANewFolderAndResumesItsOwn) {
  EXPECT_EQ(claim_output(output_, "uid-1", false), Claim::kNew);
  EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile));
  EXPECT_EQ(claim_output(output_, "uid-1", false), Claim::kResumed);
}

TEST_F(OutputClaim, TakesAnEmptyFolderAndAFreshVolume) {
  std::filesystem::create_directories(output_ / "lost+found");
  EXPECT_EQ(claim_output(output_ / "", "uid-1", false), Claim::kNew);
}

// A restarted worker still has --overwrite_output_dir among its arguments.
TEST_F(OutputClaim, ResumesItsOwnEvenWhenToldToOverwrite) {
  claim_output(output_, "uid-1", true);
  write_checkpoint_of_step(5);
  EXPECT_EQ(claim_output(output_, "uid-1", true), Claim::kResumed);
  EXPECT_NE(latest_checkpoint(output_), std::nullopt);
}

TEST_F(OutputClaim, RefusesAnotherJobAndForeignContent) {
  claim_output(output_, "uid-1", false);
  expect_refused("uid-2", "belongs to job \"uid-1\", this is job \"uid-2\"");
  EXPECT_EQ(claim_output(output_, "uid-1", false), Claim::kResumed);
  std::filesystem::remove(output_ / kClaimFile);
  put_file(output_ / "thesis.txt", "");
  expect_refused("uid-1", "is not empty (it holds thesis.txt) and belongs to no job");
}

TEST_F(OutputClaim, OverwritesOnlyWhatThisProgramWrote) {
  claim_output(output_, "uid-1", false);
  write_checkpoint_of_step(5);
  put_file(output_ / "thesis.txt", "");
  std::filesystem::create_directory(output_ / "checkpoint-7");  // another program's
  EXPECT_EQ(claim_output(output_, "uid-2", true), Claim::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile, "checkpoint-7", "thesis.txt"));
  EXPECT_EQ(claim_output(output_, "uid-2", false), Claim::kResumed);
  expect_refused("uid-1", "belongs to job \"uid-2\"");
}

TEST_F(OutputClaim, OverwritesForeignContentWithoutAClaim) {
  std::filesystem::create_directories(output_);
  put_file(output_ / "thesis.txt", "");
  write_checkpoint_of_step(5);
  EXPECT_EQ(claim_output(output_, "uid-1", true), Claim::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile, "thesis.txt"));
}

TEST_F(OutputClaim, RefusesAClaimItCannotRead) {
  std::filesystem::create_directories(output_);
  put_file(output_ / kClaimFile, "{\"job_uid\": 7}");
  expect_refused("uid-1", "job_uid is 7, expected a text");
  put_file(output_ / kClaimFile, "{");
  expect_refused("uid-1", "is not valid JSON");
  EXPECT_EQ(claim_output(output_, "uid-1", true), Claim::kOverwritten);
}

TEST_F(OutputClaim, IsExaminedWithoutAChange) {
  EXPECT_EQ(examine_output(output_, "uid-1", false), Claim::kNew);
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
  claim_output(output_, "uid-1", false);
  write_checkpoint_of_step(5);
  EXPECT_EQ(examine_output(output_, "uid-1", false), Claim::kResumed);
  EXPECT_EQ(examine_output(output_, "uid-2", true), Claim::kOverwritten);
  EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile, "checkpoint-5"));
  EXPECT_EQ(claim_output(output_, "uid-1", false), Claim::kResumed);
}

TEST_F(OutputClaim, LeavesNothingBehindWhereNothingCanBeWritten) {
  put_file(folder_.path() / "a", "a file in the way");
  expect_refused("uid-1", "cannot create the output folder");
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("a"));
  std::filesystem::remove(folder_.path() / "a");
  std::filesystem::create_directories(output_.parent_path());
  put_file(output_, "a file in its place");
  expect_failure([&] { claim_output(output_, "uid-1", false); }, ExitCode::kOutput,
                 HasSubstr("is a file, expected a folder"));
}

// In a process of its own that is not root, who may write anywhere.
TEST_F(OutputClaim, RefusesAParentWithoutTheRightToWrite) {
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(3);
    try {
      claim_output(output_, "uid-1", false);
      _exit(2);
    } catch (const Failure& failure) {
      const std::string sentence = failure.what();
      const bool said = sentence.find(output_.string() +
                                      ": cannot create the output folder: "
                                      "Permission denied") == 0;
      _exit(said && failure.code() == ExitCode::kOutput ? 0 : 1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(names_in(folder_.path()), IsEmpty());
}

TEST_F(OutputClaim, RemovesWhatADeadProcessLeftAside) {
  claim_output(output_, "uid-1", false);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  std::filesystem::create_directory(output_ / (".checkpoint-3.tmp-" + std::to_string(child)));
  put_file(output_ / (std::string(kClaimFile) + ".tmp-" + std::to_string(child)), "{");
  EXPECT_EQ(claim_output(output_, "uid-1", false), Claim::kResumed);
  EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile));
}

// Of several that claim at once, exactly one gets the folder.
TEST_F(OutputClaim, IsGivenToOneOfSeveralJobs) {
  for (int round = 0; round < 20; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          claim_output(output_, "uid-" + std::to_string(i), false);
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
    EXPECT_THAT(names_in(output_), ElementsAre(kClaimFile));
    std::filesystem::remove_all(folder_.path() / "a");
  }
}

}  // namespace
}  // namespace tilewright::checkpoint
