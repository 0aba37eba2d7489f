// Tests writing to a file system with the faults of network storage: no RENAME_NOREPLACE, silly
// renames, and errors that pass.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file_descriptor.h"
#include "tests/support/faulty_fs.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/model_directory.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class StorageFaults : public testing::WithFaultyFileSystem<::testing::Test> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithFaultyFileSystem::SetUp());
    if (!IsSkipped()) output_ = storage_->path() / "output";
  }
  void write(const OutputWriter& writer, std::int64_t step, const std::string& who = "") {
    CheckpointContent content;
    content.state.global_step = step;
    content.extra_files["who"] = who;
    write_checkpoint(writer, content);
  }
  void write_model(const OutputWriter& writer) {
    write_model_directory(writer,
                          {{{"classifier.weight", {2}, values_.data()}}, "{}\n", {{"who", "new"}}});
  }

  std::filesystem::path output_;
  std::vector<float> values_ = {1, 2};
};

TEST_F(StorageFaults, WithoutRenameFlagsADirectoryIsAcquiredByExactlyOneOfSeveralJobs) {
  for (int round = 0; round < 10; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          own(output_, 1, "uid-" + std::to_string(i));
          _exit(0);
        } catch (const Failure& failure) {
          _exit(static_cast<int>(failure.code()));
        }
      }
      children.push_back(child);
    }
    std::vector<int> codes;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      codes.push_back(WEXITSTATUS(status));
    }
    std::ranges::sort(codes);
    const int refused = static_cast<int>(ExitCode::kOutput);
    EXPECT_THAT(codes, ElementsAre(0, refused, refused, refused));
    EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
    std::filesystem::remove_all(output_);
  }
}

TEST_F(StorageFaults, WithoutLinksTheMarkerIsStillCreated) {
  storage_->fail("link", "EPERM");
  const OutputWriter writer = own(output_, 1);
  writer.check();
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
  expect_failure([&] { own(output_, 1, "uid-2"); }, ExitCode::kOutput, HasSubstr("belongs to job"));
}

TEST_F(StorageFaults, WithoutRenameFlagsACheckpointReplacesOneOfTheSameStep) {
  const OutputWriter writer = own(output_, 1);
  write(writer, 3, "old");
  write(writer, 3, "new");
  EXPECT_EQ(testing::read_text(output_ / "checkpoint-3/who"), "new");
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
}

// NFS renames a deleted file that is open, and its directory cannot be removed until it is closed.
TEST_F(StorageFaults, AnOpenFileDoesNotKeepACheckpointFromBeingDeleted) {
  const OutputWriter writer = own(output_, 1);
  for (const std::int64_t step : {1, 2, 3}) write(writer, step);
  FileDescriptor reader(open((output_ / "checkpoint-1/who").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader);
  EXPECT_THAT(prune(writer, 2), ElementsAre(output_ / "checkpoint-1"));
  EXPECT_THAT(content_of(output_),
              ElementsAre(StartsWith(".removed.tmp-"), "checkpoint-2", "checkpoint-3"));
  std::vector<std::filesystem::path> silly_names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(output_)) {
    if (entry.path().filename().string().starts_with(".nfs")) silly_names.push_back(entry.path());
  }
  ASSERT_EQ(silly_names.size(), 1u) << "expected a silly rename";
  reader.reset();
  own(output_, 2);
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-2", "checkpoint-3"));
}

TEST_F(StorageFaults, AFailedWriteMayBeTriedAgainAndLeavesNothing) {
  const struct {
    const char* operation;
    const char* error;
    const char* said;
  } kFaults[] = {{"write", "ENOSPC", "No space left on device"},
                 {"create", "ENOSPC", "No space left on device"},
                 {"mkdir", "EIO", "Input/output error"},
                 {"fsync", "EIO", "Input/output error"},
                 {"open", "ESTALE", "Stale file handle"},
                 {"rename", "ESTALE", "Stale file handle"}};
  const OutputWriter writer = own(output_, 1);
  write(writer, 3, "old");
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(fault.operation);
    storage_->fail(fault.operation, fault.error, ".checkpoint-");
    expect_failure([&] { write(writer, 4); }, ExitCode::kOutputUnavailable, HasSubstr(fault.said));
    storage_->clear();
    EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
    storage_->fail(fault.operation, fault.error, ".model.");
    expect_failure([&] { write_model(writer); }, ExitCode::kOutputUnavailable,
                   HasSubstr(fault.said));
    storage_->clear();
    EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
  }
  write(writer, 4);
  write_model(writer);
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3", "checkpoint-4", "config.json",
                                               "model.safetensors", "who"));
}

TEST_F(StorageFaults, AMarkerThatCannotBeReadIsNotANewerWriter) {
  const OutputWriter writer = own(output_, 1);
  storage_->fail("open", "ESTALE", kOwnershipMarkerFile);
  expect_failure([&] { write(writer, 3); }, ExitCode::kOutputUnavailable,
                 HasSubstr(kOwnershipMarkerFile));
  writer.throw_if_superseded();
  storage_->clear();
  write(writer, 3);
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
}

// Not as if there were no checkpoints, or those of another job.
TEST_F(StorageFaults, AnErrorOfReadingIsNotAnEmptyOutput) {
  write(own(output_, 1), 3);
  storage_->fail("readdir", "ESTALE");
  expect_failure([&] { latest_valid_checkpoint(output_); }, ExitCode::kOutputUnavailable,
                 HasSubstr("cannot list the checkpoints: Stale file handle"));
  storage_->clear();
  for (const bool overwrite : {false, true}) {
    storage_->fail("open", "EIO", kOwnershipMarkerFile);
    expect_failure(
        [&] {
          check_output_dir(output_, {"uid-1", {}, overwrite});
        },
        ExitCode::kOutputUnavailable, HasSubstr(kOwnershipMarkerFile));
    storage_->clear();
    EXPECT_EQ(check_output_dir(output_, {"uid-1", {}, overwrite}), OutputOwnership::kResumed);
  }
}

// Neither as a new output nor as one of another job. A denied access does not pass.
TEST_F(StorageFaults, AnErrorOfTheFileSystemIsNotAnAbsentOutput) {
  write(own(output_, 1), 3);
  const struct {
    const char* operation;
    const char* error;
    const char* part;
    ExitCode code;
    const char* said;
  } kFaults[] = {
      {"getattr", "EIO", "/output", ExitCode::kOutputUnavailable, "Input/output error"},
      {"getattr", "ESTALE", "/output", ExitCode::kOutputUnavailable, "Stale file handle"},
      {"getattr", "EACCES", "/output", ExitCode::kOutput, "Permission denied"},
      {"getattr", "EIO", kOwnershipMarkerFile, ExitCode::kOutputUnavailable, "Input/output error"},
      {"getattr", "EACCES", kOwnershipMarkerFile, ExitCode::kOutput, "Permission denied"},
      {"open", "EACCES", kOwnershipMarkerFile, ExitCode::kOutput, "Permission denied"}};
  for (const auto& fault : kFaults) {
    for (const bool overwrite : {false, true}) {
      SCOPED_TRACE(::testing::Message() << fault.operation << ' ' << fault.error << ' '
                                        << fault.part << ' ' << overwrite);
      const OutputRequest request{"uid-1", 2, overwrite};
      storage_->fail(fault.operation, fault.error, fault.part);
      const auto said = ::testing::AllOf(HasSubstr(fault.part), HasSubstr(fault.said));
      expect_failure([&] { check_output_dir(output_, request); }, fault.code, said);
      expect_failure([&] { acquire_output_dir(output_, request); }, fault.code, said);
      if (std::string(fault.part) == "/output") {
        expect_failure([&] { require_usable_output_dir(output_); }, fault.code, said);
        expect_failure([&] { is_checkpoint_of(output_ / "checkpoint-3", output_); }, fault.code,
                       said);
      }
      storage_->clear();
      EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
    }
  }
}

TEST_F(StorageFaults, ADirectoryThatCannotBeListedMayPass) {
  std::filesystem::create_directory(output_);
  storage_->fail("readdir", "EIO");
  expect_failure(
      [&] {
        check_output_dir(output_, {"uid-1", {}});
      },
      ExitCode::kOutputUnavailable,
      HasSubstr("cannot list the output directory: Input/output error"));
  storage_->clear();
  EXPECT_EQ(check_output_dir(output_, {"uid-1", {}}), OutputOwnership::kNew);
}

// An older checkpoint would repeat steps without a word.
TEST_F(StorageFaults, ACheckpointThatCannotBeReadIsNotPassedOver) {
  const OutputWriter writer = own(output_, 1);
  for (const std::int64_t step : {3, 4}) write(writer, step);
  const struct {
    const char* operation;
    const char* error;
    const char* part;
    ExitCode code;
  } kFaults[] = {
      {"getattr", "EIO", "checkpoint-4/checksums.json", ExitCode::kOutputUnavailable},
      {"getattr", "EIO", "checkpoint-4/trainer_state.json", ExitCode::kOutputUnavailable},
      {"getattr", "EACCES", "checkpoint-4/trainer_state.json", ExitCode::kOutput},
      {"open", "EIO", "checkpoint-4/checksums.json", ExitCode::kOutputUnavailable},
      {"open", "EACCES", "checkpoint-4/checksums.json", ExitCode::kOutput},
      {"open", "ESTALE", "checkpoint-4/trainer_state.json", ExitCode::kOutputUnavailable},
      {"open", "EACCES", "checkpoint-4/trainer_state.json", ExitCode::kOutput},
      {"read", "EIO", "checkpoint-4/checksums.json", ExitCode::kOutputUnavailable},
      {"read", "EIO", "checkpoint-4/trainer_state.json", ExitCode::kOutputUnavailable}};
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(::testing::Message()
                 << fault.operation << ' ' << fault.error << ' ' << fault.part);
    const std::filesystem::path newest = output_ / "checkpoint-4";
    storage_->fail(fault.operation, fault.error, fault.part);
    expect_failure([&] { latest_valid_checkpoint(output_); }, fault.code, HasSubstr(fault.part));
    expect_failure([&] { read_checkpoint_state(newest); }, fault.code, HasSubstr(fault.part));
    expect_failure([&] { verify_checkpoint(newest); }, fault.code, HasSubstr(fault.part));
    storage_->clear();
    EXPECT_EQ(latest_valid_checkpoint(output_).path, newest);
  }
}

TEST_F(StorageFaults, ADamagedCheckpointIsPassedOver) {
  const OutputWriter writer = own(output_, 1);
  for (const std::int64_t step : {3, 4, 5, 6}) write(writer, step);
  std::filesystem::remove(output_ / "checkpoint-6/trainer_state.json");
  std::filesystem::remove(output_ / "checkpoint-5/trainer_state.json");
  std::filesystem::create_directory(output_ / "checkpoint-5/trainer_state.json");
  std::filesystem::resize_file(output_ / "checkpoint-4/trainer_state.json", 3);
  const ValidCheckpoint valid = latest_valid_checkpoint(output_);
  EXPECT_EQ(valid.path, output_ / "checkpoint-3");
  EXPECT_THAT(valid.warnings,
              ElementsAre(HasSubstr("is missing"), HasSubstr("is not a regular file"),
                          HasSubstr("is 3 bytes long")));
}

// An earlier writer could still commit from a staging directory that was not removed.
TEST_F(StorageFaults, AStagingDirectoryThatCannotBeReadKeepsANewOwnerFromStarting) {
  const OutputWriter writer = own(output_, 1);
  const AtomicDirectory pending(writer, "checkpoint-4");
  const OutputRequest request{"uid-1", 2};
  const struct {
    const char* operation;
    const char* part;
  } kFaults[] = {{"readdir", "/output"},
                 {"open", ".writer.json"},
                 {"getattr", ".checkpoint-4.tmp-"},
                 {"rename", ".checkpoint-4.tmp-"}};
  for (const auto& fault : kFaults) {
    SCOPED_TRACE(::testing::Message() << fault.operation << ' ' << fault.part);
    storage_->fail(fault.operation, "EIO", fault.part);
    expect_failure([&] { acquire_output_dir(output_, request); }, ExitCode::kOutputUnavailable,
                   HasSubstr("Input/output error"));
    storage_->clear();
  }
  acquire_output_dir(output_, request);
  EXPECT_THAT(content_of(output_), ElementsAre());
}

TEST_F(StorageFaults, ATokenizerThatCannotBeReadIsNotLeftOut) {
  write_file(output_.parent_path() / "vocab.txt", "[PAD]\n");
  for (const char* operation : {"getattr", "open"}) {
    storage_->fail(operation, "EIO", "vocab.txt");
    expect_failure([&] { tokenizer_files(output_.parent_path()); }, ExitCode::kOutputUnavailable,
                   HasSubstr("vocab.txt"));
    storage_->clear();
  }
  EXPECT_THAT(tokenizer_files(output_.parent_path()),
              ElementsAre(::testing::Pair("vocab.txt", "[PAD]\n")));
}

TEST_F(StorageFaults, AnErrorAfterTheMarkerMayPass) {
  for (const std::uint64_t epoch : {1, 2}) {
    SCOPED_TRACE(epoch);
    const OutputRequest request{"uid-1", epoch};
    storage_->fail("fsyncdir", "EIO");
    expect_failure([&] { acquire_output_dir(output_, request); }, ExitCode::kOutputUnavailable,
                   HasSubstr("Input/output error"));
    storage_->clear();
    expect_failure([&] { own(output_, epoch); }, ExitCode::kSuperseded,
                   HasSubstr("expected a later one"));
    write(acquire_output_dir(output_, request), static_cast<std::int64_t>(epoch));
  }
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-1", "checkpoint-2"));
}

// Linux's answer for a file system that has no such operation.
TEST_F(StorageFaults, DirectoriesWithoutFsyncAreUsable) {
  storage_->fail("fsyncdir", "EINVAL");
  const OutputWriter writer = own(output_, 1);
  write(writer, 1);
  write_model(writer);
  EXPECT_THAT(content_of(output_),
              ElementsAre("checkpoint-1", "config.json", "model.safetensors", "who"));
  storage_->fail("fsync", "EINVAL", ".checkpoint-");
  expect_failure([&] { write(writer, 2); }, ExitCode::kOutput, HasSubstr("Invalid argument"));
}

TEST_F(StorageFaults, AFullDiskAtTheStartMayPass) {
  own(output_, 1);
  storage_->fail("write", "ENOSPC");
  expect_failure([&] { own(output_, 2); }, ExitCode::kOutputUnavailable,
                 HasSubstr("No space left on device"));
  storage_->clear();
  EXPECT_THAT(names_in(output_), ElementsAre(kOwnershipMarkerFile));
  own(output_, 2);
}

}  // namespace
}  // namespace tilewright::checkpoint
