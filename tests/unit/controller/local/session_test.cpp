// Session: what `tilewright up` says about the failures of its workers.
#include "controller/local/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <functional>
#include <utility>

#include "controller/api/defaults.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class IdleCoordinator final : public Coordinator {
 public:
  IdleCoordinator() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  std::string endpoint() const override { return "127.0.0.1:29400"; }
  Status expect(const policy::Membership&) override { return {}; }
  void close() override {}
  void worker_exited(int) override {}
  std::optional<policy::RendezvousView> progress() const override { return std::nullopt; }
  int changes_fd() const override { return fd_.get(); }
  void take_changes() override {}

 private:
  FileDescriptor fd_;
};

struct Ended {
  api::TrainJob job;
  std::string screen;
  int stop_signal = 0;
};

// Runs a job until it ends. Worker i executes scripts[i] at each start, in an empty directory.
// `now` is the clock of the workers' times.
Ended run_job(const std::vector<std::string>& scripts, int max_restarts,
              std::function<WallTime()> now = wall_now) {
  const testing::TemporaryDirectory folder;
  const std::string screen = folder.path() / "screen";
  const FileDescriptor output(open(screen.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  api::TrainJob job;
  job.metadata.name = "mrpc";
  job.metadata.uid = "11111111-2222-4333-8444-555555555555";
  job.metadata.generation = 1;
  job.spec.trainer.task = "mrpc";
  job.spec.worker.replicas = static_cast<std::int64_t>(scripts.size());
  job.spec.elastic_policy.max_restarts = max_restarts;
  api::apply_defaults(job);

  Signals signals = Signals::install().or_throw();
  Console console({.output = output.get()});
  IdleCoordinator coordinator;
  Session::Options options;
  options.workers.log_folder = folder.path();
  options.workers.node = "node-a";
  options.workers.grace = std::chrono::seconds(30);
  options.workers.now = std::move(now);
  options.workers.new_uid = [next = 0]() mutable { return fmt::format("uid-{}", next++); };
  options.workers.command = [&](const policy::WorkerCreation& creation) {
    ChildCommand command;
    command.program = "/bin/sh";
    command.arguments = {"-c", fmt::format("cd {}; {}", folder.path().string(),
                                           scripts.at(static_cast<std::size_t>(creation.index)))};
    command.environment = {"PATH=/usr/bin:/bin"};
    return Result<ChildCommand>(command);
  };
  options.save = [](const api::TrainJob&) { return Status(); };
  Session session(job, coordinator, signals, console, std::move(options));
  session.run();
  return {session.job(), testing::read_text(screen), session.stop_signal()};
}

int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

// The first restart is immediate, the second waits for up to a second, the third is not allowed.
TEST(Session, PrintsOneLineForEachFailure) {
  const Ended run = run_job({"echo 'tilewright-worker: no model' >&2; exit 11"}, 2);
  ASSERT_EQ(run.job.status.phase, api::Phase::kFailed);
  EXPECT_EQ(run.job.status.restarts.program, 2);
  EXPECT_EQ(count(run.screen,
                  "warning   worker 0 (mrpc-worker-0 on node-a) exited with code 11 "
                  "(tilewright-worker: no model)"),
            2)
      << run.screen;
  EXPECT_EQ(count(run.screen, "no model"), 2) << run.screen;
}

TEST(Session, LeavesTheFailureThatEndsTheJobToTheLastLinesOfTheRun) {
  const Ended run = run_job({"echo 'tilewright-worker: --seed: found x' >&2; exit 2"}, 3);
  ASSERT_EQ(run.job.status.phase, api::Phase::kFailed);
  EXPECT_EQ(run.job.status.restarts.total(), 0);
  EXPECT_THAT(run.screen, Not(HasSubstr("--seed")));
}

// The clock was an hour ahead when the worker ended, and was then set back.
TEST(Session, RecordsNoTimeInTheFuture) {
  const Ended run = run_job({"exit 2"}, 3, [] { return wall_now() + std::chrono::hours(1); });
  ASSERT_EQ(run.job.status.failures.size(), 1U);
  EXPECT_LE(run.job.status.failures.front().time, wall_now());
}

TEST(Session, NamesNoFieldOfTheSpecAfterASignal) {
  const Ended run =
      run_job({"trap 'exit 143' TERM; kill -INT $PPID; while :; do sleep 0.01; done"}, 3);
  EXPECT_EQ(run.stop_signal, SIGINT);
  EXPECT_EQ(run.job.status.phase, api::Phase::kSuspended);
  EXPECT_THAT(run.screen, HasSubstr("stopping"));
  EXPECT_THAT(run.screen, Not(HasSubstr("spec.runPolicy.suspend")));
}

// Worker 0 fails for good; while worker 1 stops, it sends SIGINT to `up`.
TEST(Session, ASignalAfterTheEndDoesNotStopTheJob) {
  const Ended run =
      run_job({"while [ ! -e ready ]; do sleep 0.01; done; exit 2",
               "trap 'kill -INT $PPID; exit 0' TERM; touch ready; while :; do sleep 0.01; done"},
              3);
  EXPECT_THAT(run.screen, HasSubstr("stopping"));
  EXPECT_EQ(run.job.status.phase, api::Phase::kFailed);
  EXPECT_EQ(run.stop_signal, 0);
}

}  // namespace
}  // namespace tilewright::local
