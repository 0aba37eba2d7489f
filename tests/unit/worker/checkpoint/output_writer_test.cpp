// Tests that of several processes that write to one output directory only the newest changes it,
// whatever the others do and whenever they continue.
#include "worker/checkpoint/output_writer.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/checkpoint/atomic_directory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/model_directory.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A token that one process sends to another.
class Event {
 public:
  Event() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~Event() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void send() const { EXPECT_EQ(write(ends_[1], "x", 1), 1); }
  bool wait() const {
    pollfd polled{ends_[0], POLLIN, 0};
    char token = 0;
    return poll(&polled, 1, 180'000) == 1 && read(ends_[0], &token, 1) == 1;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Runs `work` in a child process with clone(2) flags. It exits with 0, or with the code of the
// Failure. -1: the flags are not permitted here.
pid_t start(const std::function<void()>& work, int flags = 0) {
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child != 0) return child;
  try {
    work();
  } catch (const Failure& failure) {
    _exit(static_cast<int>(failure.code()));
  } catch (...) {
    _exit(static_cast<int>(ExitCode::kInternal));
  }
  _exit(0);
}

ExitCode exit_code_of(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return static_cast<ExitCode>(WEXITSTATUS(status));
}

class OutputWriterTest : public ::testing::Test {
 protected:
  CheckpointContent checkpoint_of(const std::string& who, std::int64_t step) {
    CheckpointContent content;
    content.state.global_step = step;
    content.extra_files["who"] = who;
    return content;
  }
  ModelDirectoryContent model_of(const std::string& who) {
    return {{{"classifier.weight", {2}, values_.data()}}, "{}\n", {{"who", who}}};
  }
  std::string who(const std::string& directory) const {
    return testing::read_text(output_ / directory / "who");
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path output_ = directory_.path() / "output";
  std::vector<float> values_ = {1, 2};
};

// In a container every process has the id 1.
TEST_F(OutputWriterTest, SharesNoFilesWithAWriterOfTheSameProcessId) {
  Event written, committed;
  const pid_t old_writer = start(
      [&] {
        TW_CHECK(getpid() == 1, "expected the first process of a PID namespace");
        const OutputWriter writer = own(output_, 1);
        CheckpointContent content = checkpoint_of("old", 3);
        content.before_commit = [&] {
          written.send();
          TW_CHECK(committed.wait(), "the new writer does not commit");
        };
        write_checkpoint(writer, content);
      },
      CLONE_NEWPID);
  if (old_writer < 0) {
    if (testing::prerequisites_required()) FAIL() << "a PID namespace needs CAP_SYS_ADMIN";
    GTEST_SKIP() << "a PID namespace needs CAP_SYS_ADMIN";
  }
  ASSERT_TRUE(written.wait());
  const pid_t new_writer = start(
      [&] {
        TW_CHECK(getpid() == 1, "expected the first process of a PID namespace");
        write_checkpoint(own(output_, 2), checkpoint_of("new", 3));
      },
      CLONE_NEWPID);
  EXPECT_EQ(exit_code_of(new_writer), ExitCode::kOk);
  committed.send();
  EXPECT_EQ(exit_code_of(old_writer), ExitCode::kSuperseded);
  EXPECT_THAT(content_of(output_), ElementsAre("checkpoint-3"));
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-3");
  EXPECT_EQ(who("checkpoint-3"), "new");
}

// A node that only looked dead: rank 0 continues after another epoch has finished the job.
TEST_F(OutputWriterTest, LeavesANewerOutputIntactAfterSigcont) {
  const auto stop = [] { raise(SIGSTOP); };
  const std::function<void(const OutputWriter&)> writes[] = {
      [&](const OutputWriter& writer) {
        CheckpointContent content = checkpoint_of("old", 3);
        content.before_commit = stop;
        write_checkpoint(writer, content);
      },
      [&](const OutputWriter& writer) {
        ModelDirectoryContent content = model_of("old");
        content.before_commit = stop;
        write_model_directory(writer, content);
      },
      [&](const OutputWriter& writer) {
        write_checkpoint(writer, checkpoint_of("old", 1));
        stop();
        prune(writer, 1);
      },
  };
  std::uint64_t epoch = 0;
  for (const auto& write_old : writes) {
    ++epoch;
    const pid_t old_writer = start([&] { write_old(own(output_, epoch)); });
    int status = 0;
    ASSERT_EQ(waitpid(old_writer, &status, WUNTRACED), old_writer);
    ASSERT_TRUE(WIFSTOPPED(status));
    ++epoch;
    const OutputWriter newer = own(output_, epoch);
    write_checkpoint(newer, checkpoint_of("new", 2));
    write_checkpoint(newer, checkpoint_of("new", 3));
    write_model_directory(newer, model_of("new"));
    const auto names = content_of(output_);
    kill(old_writer, SIGCONT);
    EXPECT_EQ(exit_code_of(old_writer), ExitCode::kSuperseded);
    EXPECT_EQ(content_of(output_), names);
    EXPECT_EQ(who("checkpoint-3"), "new");
    EXPECT_EQ(who(""), "new");
    EXPECT_EQ(digest_of(output_ / "model.safetensors", ExitCode::kWeights).size,
              std::filesystem::file_size(output_ / "model.safetensors"));
    newer.check();
  }
}

// SIGSTOP can also come between the check and the rename. The earlier marker in its place lets the
// check pass, as it did in such a process.
TEST_F(OutputWriterTest, CannotMoveAnythingOnceItsStagingDirectoryIsRemoved) {
  const OutputWriter old_writer = own(output_, 1);
  const std::string old_marker = testing::read_text(output_ / kOwnershipMarkerFile);
  const auto prepare = [&](AtomicDirectory& directory) {
    directory.fill([](const auto& folder) {
      write_file(folder / "who", "old");
      write_file(folder / "main", "old");
    });
  };
  AtomicDirectory directory(old_writer, "target");
  AtomicDirectory files(old_writer, "files");
  prepare(directory);
  prepare(files);

  const OutputWriter newer = own(output_, 2);
  EXPECT_THAT(content_of(output_), ElementsAre());
  std::filesystem::create_directory(output_ / "target");
  for (const char* path : {"target/who", "who", "main"}) write_file(output_ / path, "new");
  write_file(output_ / kOwnershipMarkerFile, old_marker);
  old_writer.check();
  EXPECT_THROW(directory.commit(), Failure);
  EXPECT_THROW(files.commit_files("main"), Failure);
  EXPECT_THAT(content_of(output_), ElementsAre("main", "target", "who"));
  EXPECT_EQ(who(""), "new");
  EXPECT_EQ(who("target"), "new");
  EXPECT_EQ(testing::read_text(output_ / "main"), "new");
}

TEST_F(OutputWriterTest, NamesWhoHasTakenTheDirectoryOver) {
  const OutputWriter writer = own(output_, 3);
  const auto expect_superseded = [&](const std::string& part) {
    expect_failure([&] { writer.check(); }, ExitCode::kSuperseded,
                   AllOf(HasSubstr(output_.string()), HasSubstr(part), HasSubstr("(epoch 3)")));
    expect_failure([&] { write_checkpoint(writer, checkpoint_of("old", 3)); },
                   ExitCode::kSuperseded, HasSubstr(part));
  };
  writer.check();
  own(output_, 7);
  expect_superseded("a newer process of this job (epoch 7) writes to it");
  acquire_output_dir(output_, {"uid-2", 1, true});
  expect_superseded("job \"uid-2\" has taken it over");
}

// Somebody has emptied the directory, or its volume is not mounted at the moment.
TEST_F(OutputWriterTest, WritesNothingWithoutItsMarker) {
  const OutputWriter writer = own(output_);
  std::filesystem::rename(output_ / kOwnershipMarkerFile, directory_.path() / "marker");
  expect_failure([&] { write_checkpoint(writer, checkpoint_of("old", 3)); },
                 ExitCode::kOutputUnavailable, HasSubstr(".tilewright-job.json: is missing"));
  EXPECT_THAT(names_in(output_), ElementsAre());
  std::filesystem::rename(directory_.path() / "marker", output_ / kOwnershipMarkerFile);
  write_checkpoint(writer, checkpoint_of("old", 3));
}

// Two processes that were started for one output directory by hand.
TEST_F(OutputWriterTest, OfTwoProcessesWithoutACoordinatorTheLaterOneWrites) {
  const OutputWriter first = own(output_);
  const OutputWriter second = own(output_);
  expect_failure([&] { write_checkpoint(first, checkpoint_of("first", 3)); }, ExitCode::kSuperseded,
                 HasSubstr("a newer process of this job (epoch 2)"));
  write_checkpoint(second, checkpoint_of("second", 3));
  EXPECT_EQ(who("checkpoint-3"), "second");
}

// The new writer has removed its staging directory.
TEST_F(OutputWriterTest, ReportsItsEndWhileItWritesFiles) {
  const OutputWriter writer = own(output_, 1);
  const AtomicDirectory directory(writer, "checkpoint-1");
  expect_failure(
      [&] {
        directory.fill([&](const std::filesystem::path& folder) {
          own(output_, 2);
          write_new_file(folder / "who", "old").or_throw();
        });
      },
      ExitCode::kSuperseded, HasSubstr("a newer process of this job (epoch 2) writes to it"));
}

// Each process acquires the directory and writes until a later one supersedes it.
TEST_F(OutputWriterTest, IsTheOnlyOneOfManyConcurrentProcesses) {
  constexpr int kProcesses = 6;
  std::vector<pid_t> children;
  for (std::uint64_t epoch = 1; epoch <= kProcesses; ++epoch) {
    children.push_back(start([&, epoch] {
      const OutputWriter writer = own(output_, epoch);
      for (std::int64_t step = 1; step <= 20; ++step) {
        write_checkpoint(writer, checkpoint_of(std::to_string(epoch), step));
        prune(writer, 2);
      }
      write_model_directory(writer, model_of(std::to_string(epoch)));
    }));
  }
  int completed = 0;
  for (const pid_t child : children) {
    const ExitCode code = exit_code_of(child);
    if (code == ExitCode::kOk) ++completed;
    EXPECT_TRUE(code == ExitCode::kOk || code == ExitCode::kSuperseded) << static_cast<int>(code);
    if (child == children.back()) {
      EXPECT_EQ(code, ExitCode::kOk) << "the latest epoch completes";
    }
  }
  EXPECT_GE(completed, 1);
  EXPECT_EQ(who(""), std::to_string(kProcesses));
  EXPECT_EQ(who("checkpoint-20"), std::to_string(kProcesses));
  EXPECT_EQ(latest_valid_checkpoint(output_).path, output_ / "checkpoint-20");
}

}  // namespace
}  // namespace tilewright::checkpoint
