// Tests of when a job has succeeded.
#include "controller/policy/success.h"

#include <gtest/gtest.h>

#include "controller/policy/status.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::seconds;
using testing::JobSimulator;

// No leader hears the last reports; then both workers exit.
void finish_without_reports(JobSimulator& sim) {
  sim.observed.rendezvous.reset();
  sim.succeed(0);
  sim.succeed(1);
  sim.settle();
}

TEST(Success, NeedsAllWorkersToExit) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.step = sim.observed.rendezvous->progress.total_steps = 230;
  sim.observed.rendezvous->progress.metrics = {{"eval_accuracy", 0.8725}, {"eval_f1", 0.9}};
  sim.pass(seconds(60));
  sim.succeed(1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning) << "worker 0 is still writing";
  EXPECT_EQ(sim.observed.workers.size(), 2U) << "a finished worker is not restarted";
  sim.succeed(0);
  const Plan plan = sim.step();
  EXPECT_TRUE(plan.finished);
  EXPECT_FALSE(plan.membership) << "the coordinator refuses joiners";
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(sim.status().completion_time, testing::kStart + seconds(60));
  const api::Condition* succeeded = sim.status().find_condition(api::condition::kSucceeded);
  ASSERT_NE(succeeded, nullptr);
  EXPECT_EQ(succeeded->reason, "TrainingComplete");
  EXPECT_EQ(succeeded->message,
            "training completed after 230 steps: eval_accuracy 0.8725, eval_f1 0.9");
  EXPECT_EQ(sim.status().restarts.total(), 0);
  EXPECT_EQ(sim.status().replicas.succeeded, 2);
}

TEST(Success, ReportsTheMetricsOfTheStatusAfterTheWorkersExit) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.step = sim.observed.rendezvous->progress.total_steps = 230;
  sim.settle();
  sim.observed.rendezvous->progress.metrics = {{"eval_accuracy", 0.8725}};
  EXPECT_TRUE(sim.step().status) << "results are written at once";
  finish_without_reports(sim);
  EXPECT_EQ(sim.status().find_condition(api::condition::kSucceeded)->message,
            "training completed after 230 steps: eval_accuracy 0.8725");
}

TEST(Success, ReportsTheLossOfAJobWithoutAnEvaluation) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  rendezvous::Progress& reported = sim.observed.rendezvous->progress;
  reported.step = reported.total_steps = 40;
  reported.loss = 0.70371;
  sim.settle();
  // Written by an earlier version of the operator.
  sim.status().progress->metrics = {{"exchange_seconds", 0.25}};
  finish_without_reports(sim);
  EXPECT_EQ(sim.status().find_condition(api::condition::kSucceeded)->message,
            "training completed after 40 steps: loss 0.7037");
}

// No leader is reachable while the workers finish; they exit after their finish_timeout.
TEST(Success, ShowsAllStepsIfTheLastReportsAreLost) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  rendezvous::Progress& reported = sim.observed.rendezvous->progress;
  reported.step = 7;
  reported.total_steps = 12;
  reported.epoch_of_data = 1.75;
  reported.loss = 0.5;
  sim.settle();
  const RendezvousView old = *sim.observed.rendezvous;
  finish_without_reports(sim);
  ASSERT_EQ(sim.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(sim.status().progress->step, 12);
  EXPECT_DOUBLE_EQ(sim.status().progress->epoch, 3);
  EXPECT_FALSE(sim.status().progress->loss) << "of the last step, whose report is lost";
  EXPECT_EQ(sim.status().find_condition(api::condition::kSucceeded)->message,
            "training completed after 12 steps");
  sim.observed.rendezvous = old;
  sim.pass(seconds(60));
  EXPECT_FALSE(sim.step().status) << "an older report does not return";
}

TEST(Success, WaitsHalfAMinuteForTheOtherWorkers) {
  JobSimulator sim;
  sim.start();
  sim.succeed(0);
  EXPECT_FALSE(sim.step().finished);
  sim.pass(seconds(10));
  sim.step();  // writes the settled counts
  EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(20)));
  sim.pass(seconds(20));
  const Plan done = sim.step();
  EXPECT_TRUE(done.finished);
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
  ASSERT_EQ(done.deletions.size(), 1U) << "the worker that did not exit";
  EXPECT_EQ(done.deletions[0].index, 1);
}

TEST(Success, DoesNotDependOnTheOtherExitCodes) {
  JobSimulator sim;
  sim.start();
  sim.succeed(0);
  sim.fail(1, 144);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(sim.status().restarts.total(), 0);
  EXPECT_TRUE(sim.status().failures.empty());
}

TEST(Success, TakesPrecedenceOverADeadlineThatPassesMeanwhile) {
  JobSimulator sim;
  sim.job().spec.run_policy.active_deadline_seconds = 10;
  sim.start();
  sim.succeed(0);
  sim.pass(seconds(30));
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
}

// Ranks go to the workers that have joined: with minReplicas 1 any worker may be rank 0. Any exit
// with 0 shows that the output is written.
TEST(Success, IsReportedByAnyWorker) {
  struct ExitCase {
    const char* what;
    // Of workers 0, 1, ...: '0' exited with 0, '1' failed, 'r' runs, 'p' is starting, 'u' has no
    // node, 'i' has no image, '-' does not exist.
    const char* workers;
    const char* now;    // the phase at once: Succeeded, or "" (not finished)
    const char* later;  // half a minute later
  } const cases[] = {
      {"all exited with 0", "00", "Succeeded", "Succeeded"},
      {"worker 0 has no node, so worker 1 was rank 0", "u0", "Succeeded", "Succeeded"},
      {"worker 0 cannot be started", "i0", "Succeeded", "Succeeded"},
      {"worker 0 waits to be created again", "-0", "Succeeded", "Succeeded"},
      {"worker 0 may have run; its kubelet is slow to report", "p0", "", "Succeeded"},
      {"worker 0 is about to exit", "r0", "", "Succeeded"},
      {"worker 1 is about to exit", "0r", "", "Succeeded"},
      {"worker 0 was killed after the training", "10", "Succeeded", "Succeeded"},
      {"worker 1 lost its peers after the training", "01", "Succeeded", "Succeeded"},
      {"none has exited", "rr", "", ""},
      {"none has exited with 0", "1r", "", ""},
      {"none has run", "uu", "", ""},
  };
  for (const ExitCase& c : cases) {
    SCOPED_TRACE(c.what);
    JobSimulator sim;
    sim.job().spec.elastic_policy.min_replicas = 1;
    sim.start();
    for (int index = 0; index < 2; ++index) {
      Worker& worker = sim.worker(index);
      const char state = c.workers[index];
      if (state == '0') sim.succeed(index);
      if (state == '1') sim.fail(index, 144);
      if (state == 'p' || state == 'u' || state == 'i') {
        worker.phase = WorkerPhase::kPending;
        worker.ready = false;
        worker.started.reset();
        if (state == 'u') worker.node.clear();
        if (state == 'u') sim.block(index, StartProblemCause::kUnschedulable);
        if (state == 'i') sim.block(index, StartProblemCause::kImageNotAvailable);
      }
    }
    for (int index = 0; index < 2; ++index) {
      if (c.workers[index] != '-') continue;
      std::erase_if(sim.observed.workers, [&](const Worker& w) { return w.index == index; });
    }
    const auto outcome = [&] {
      return is_final(sim.status().phase) ? std::string(api::to_string(sim.status().phase)) : "";
    };
    sim.settle();
    EXPECT_EQ(outcome(), c.now);
    sim.pass(seconds(30));
    sim.settle();
    EXPECT_EQ(outcome(), c.later);
    if (*c.later == '\0') continue;
    EXPECT_EQ(sim.status().restarts.total(), 0) << "nothing is counted after the training";
    for (const Worker& worker : sim.observed.workers) {
      EXPECT_TRUE(has_ended(worker)) << "cleanPodPolicy Running keeps only ended workers";
    }
  }
}

TEST(Success, IsNotUndoneByADeadlineThatPassesLater) {
  JobSimulator sim;
  sim.job().spec.elastic_policy.min_replicas = 1;
  sim.job().spec.run_policy.active_deadline_seconds = 10;
  sim.settle();
  sim.worker(0).node.clear();
  sim.block(0, StartProblemCause::kUnschedulable);
  sim.worker(1).phase = WorkerPhase::kRunning;
  sim.settle();
  sim.succeed(1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
}

TEST(Success, IsReportedByScaledDownWorkersToo) {
  JobSimulator sim;
  sim.job().spec.elastic_policy.min_replicas = 1;
  sim.start();
  sim.succeed(1);
  sim.worker(0).phase = WorkerPhase::kPending;
  sim.worker(0).node.clear();
  sim.job().spec.worker.replicas = 1;
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
}

// Rank 0 has reported to the rendezvous, but no kubelet has reported an exit.
class TrainingComplete : public ::testing::Test {
 protected:
  TrainingComplete() {
    sim_.start();
    sim_.observed.rendezvous = RendezvousView{};
    sim_.observed.rendezvous->progress.step = sim_.observed.rendezvous->progress.total_steps = 230;
    sim_.settle();
    sim_.observed.rendezvous->complete = true;
    sim_.settle();
  }
  JobSimulator sim_;
};

TEST_F(TrainingComplete, WaitsForTheWorkersToExit) {
  EXPECT_EQ(sim_.status().training_complete_time, testing::kStart);
  EXPECT_EQ(sim_.status().phase, api::Phase::kRunning);
  sim_.pass(seconds(119));
  sim_.settle();
  EXPECT_EQ(sim_.status().phase, api::Phase::kRunning);
  EXPECT_EQ(sim_.plan().requeue_after, WallTime::duration(seconds(1)));
  sim_.pass(seconds(1));
  EXPECT_TRUE(sim_.step().finished);
  EXPECT_EQ(sim_.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(sim_.status().training_complete_time, testing::kStart);
}

TEST_F(TrainingComplete, AnExitShortensTheWait) {
  sim_.pass(seconds(5));
  sim_.succeed(1);
  sim_.pass(seconds(30));
  sim_.settle();
  EXPECT_EQ(sim_.status().phase, api::Phase::kSucceeded);
}

TEST_F(TrainingComplete, ADeadNodeNeitherDelaysTheJobNorIsCounted) {
  Worker& zero = sim_.worker(0);
  zero.node_state = NodeState::kNotReady;
  sim_.succeed(1);
  sim_.observed.rendezvous->members[0].silent = true;
  sim_.settle();
  EXPECT_TRUE(sim_.status().failures.empty());
  sim_.pass(seconds(30));
  const Plan plan = sim_.step();
  EXPECT_EQ(sim_.status().phase, api::Phase::kSucceeded);
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force) << "its kubelet cannot confirm the deletion";
  EXPECT_EQ(sim_.status().restarts.total(), 0);
}

TEST_F(TrainingComplete, ExitCodesDoNotMatter) {
  sim_.fail(0, 137, api::FailureCause::kInfrastructure, "Evicted");
  sim_.fail(1, 144);
  sim_.settle();
  EXPECT_EQ(sim_.status().phase, api::Phase::kSucceeded);
  EXPECT_TRUE(sim_.status().failures.empty());
}

TEST_F(TrainingComplete, ANewLeaderReadsItFromTheStatus) {
  for (const bool opened : {false, true}) {
    JobSimulator sim = sim_;
    sim.observed.rendezvous.reset();
    if (opened) sim.observed.rendezvous = RendezvousView{};
    sim.fail(0, 137, api::FailureCause::kInfrastructure, "Evicted");
    sim.observed.workers.erase(sim.observed.workers.begin() + 1);
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded) << opened;
  }
}

TEST_F(TrainingComplete, ASuspendedJobStartsOver) {
  sim_.job().spec.run_policy.suspend = true;
  sim_.settle();
  EXPECT_EQ(sim_.status().phase, api::Phase::kSuspended);
  EXPECT_FALSE(sim_.status().training_complete_time);
  sim_.observed.rendezvous.reset();
  sim_.job().spec.run_policy.suspend = false;
  sim_.start();
  EXPECT_EQ(sim_.status().phase, api::Phase::kRunning);
}

}  // namespace
}  // namespace tilewright::policy
