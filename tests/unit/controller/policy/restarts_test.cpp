// Tests of which failures restart a worker, how they are counted and when.
#include "controller/policy/restarts.h"

#include <gtest/gtest.h>

#include "controller/policy/messages.h"
#include "controller/policy/observe_rendezvous.h"
#include "controller/policy/status.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using api::FailureCause;
using api::RestartPolicy;
using std::chrono::seconds;
using testing::JobSimulator;
using testing::make_job;

struct Case {
  const char* what;
  RestartPolicy policy;
  int exit_code;
  FailureCause observed;
  const char* reason;
  bool restarts;
  FailureCause cause;
  const char* end;  // the reason of the condition Failed
};

constexpr auto kProgram = FailureCause::kProgram;
constexpr auto kInfrastructure = FailureCause::kInfrastructure;
constexpr auto kMemory = FailureCause::kOutOfMemory;

const Case kCases[] = {
    {"OnFailure, exit 1", RestartPolicy::kOnFailure, 1, kProgram, "Error", true, kProgram, ""},
    {"OnFailure, exit 137", RestartPolicy::kOnFailure, 137, kProgram, "Error", true, kProgram, ""},
    {"Always, exit 11", RestartPolicy::kAlways, 11, kProgram, "Error", true, kProgram, ""},
    {"Always, bad flags", RestartPolicy::kAlways, 2, kProgram, "Error", false, kProgram,
     "InvalidFlags"},
    {"OnFailure, bad flags", RestartPolicy::kOnFailure, 2, kProgram, "Error", false, kProgram,
     "InvalidFlags"},
    {"ExitCode, bad flags", RestartPolicy::kExitCode, 2, kProgram, "Error", false, kProgram,
     "InvalidFlags"},
    {"OnFailure, evicted with exit 2", RestartPolicy::kOnFailure, 2, kInfrastructure, "Evicted",
     true, kInfrastructure, ""},
    {"OnFailure, output refused", RestartPolicy::kOnFailure, 14, kProgram, "Error", false, kProgram,
     "OutputRefused"},
    {"Always, output unavailable", RestartPolicy::kAlways, 200, kProgram, "Error", true, kProgram,
     ""},
    {"Always, evicted", RestartPolicy::kAlways, 137, kInfrastructure, "Evicted", true,
     kInfrastructure, ""},
    {"Never, exit 1", RestartPolicy::kNever, 1, kProgram, "Error", false, kProgram,
     "RestartPolicyNever"},
    {"Never, SIGKILL", RestartPolicy::kNever, 137, kProgram, "Error", false, kProgram,
     "RestartPolicyNever"},
    {"Never, evicted", RestartPolicy::kNever, 137, kInfrastructure, "Evicted", false,
     kInfrastructure, "RestartPolicyNever"},
    {"ExitCode, exit 1", RestartPolicy::kExitCode, 1, kProgram, "Error", false, kProgram,
     "PermanentExitCode"},
    {"ExitCode, exit 127", RestartPolicy::kExitCode, 127, kProgram, "Error", false, kProgram,
     "PermanentExitCode"},
    {"ExitCode, exit 128", RestartPolicy::kExitCode, 128, kProgram, "Error", true, kProgram, ""},
    {"ExitCode, SIGKILL", RestartPolicy::kExitCode, 137, kProgram, "Error", true, kProgram, ""},
    {"ExitCode, SIGSEGV", RestartPolicy::kExitCode, 139, kProgram, "Error", true, kProgram, ""},
    {"ExitCode, evicted with exit 1", RestartPolicy::kExitCode, 1, kInfrastructure, "Evicted", true,
     kInfrastructure, ""},
    {"ExitCode, preempted", RestartPolicy::kExitCode, 143, kInfrastructure, "PreemptionByScheduler",
     true, kInfrastructure, ""},
    {"OnFailure, drained", RestartPolicy::kOnFailure, 143, kInfrastructure, "EvictionByEvictionAPI",
     true, kInfrastructure, ""},
    {"OnFailure, node shut down", RestartPolicy::kOnFailure, 143, kInfrastructure, "NodeShutdown",
     true, kInfrastructure, ""},
    {"OnFailure, lost its peers", RestartPolicy::kOnFailure, 144, kProgram, "Error", true,
     kInfrastructure, ""},
    {"OnFailure, out of memory", RestartPolicy::kOnFailure, 137, kMemory, "OOMKilled", true,
     kMemory, ""},
    {"ExitCode, out of memory", RestartPolicy::kExitCode, 137, kMemory, "OOMKilled", true, kMemory,
     ""},
    {"Never, out of memory", RestartPolicy::kNever, 137, kMemory, "OOMKilled", false, kMemory,
     "RestartPolicyNever"},
};

// Exit codes have no meaning of Tilewright's trainer if an init container returns them: 2 would be
// bad flags, 20 a missing checkpoint, 144 a lost peer.
TEST(Restarts, AnInitContainerFailsLikeAnyProgram) {
  for (const int code : {1, 2, 20, 21, 144}) {
    SCOPED_TRACE(code);
    api::TrainJob job = make_job();
    job.spec.elastic_policy.max_restarts = 1;
    JobSimulator sim(job);
    sim.settle();
    sim.fail(1, code);
    sim.worker(1).init_container = "fetch";
    const Plan plan = sim.step();
    ASSERT_TRUE(plan.status);
    EXPECT_EQ(plan.status->restarts.program, 1);
    EXPECT_EQ(plan.status->failures.at(0).reason, "Error");
    EXPECT_EQ(plan.status->failures.at(0).init_container, "fetch");
    sim.settle();
    sim.fail(1, code);
    sim.worker(1).init_container = "fetch";
    sim.settle();
    EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "BackoffLimitExceeded");
  }
}

TEST(Restarts, NameTheInitContainerThatFailed) {
  JobSimulator sim;
  sim.settle();
  sim.fail(1, 3);
  sim.worker(1).init_container = "fetch";
  sim.worker(1).last_lines = "no such bucket\n";
  const Plan plan = sim.step();
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(
      describe_failure(sim.job(), plan.status->failures.at(0)),
      "init container fetch of worker 1 (mrpc-worker-1 on node-a) exited with code 3 (no such "
      "bucket)");
}

TEST(Restarts, AnInitContainerThatRunsOutOfMemoryWaitsForAHigherLimitOfItsOwn) {
  JobSimulator sim;
  sim.job().spec.worker.resources["memory"] = {.text = "8Gi"};
  for (int round = 0; round < 2; ++round) {
    sim.settle();
    sim.fail(1, 137, kMemory, "OOMKilled");
    sim.worker(1).init_container = "fetch";
    sim.settle();
  }
  const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(
      blocked->message,
      "init container fetch of worker 1 (mrpc-worker-1 on node-a) was OOM-killed, and no step "
      "was completed since its previous OOM kill; raise the memory limit of the init "
      "container to restart the worker");
}

// A sidecar runs on a node that does not respond: only a forced deletion removes the pod.
TEST(Restarts, ForceDeleteAnUnresponsivePodAfterItsWorkerEnds) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous.emplace().members[1].silent = true;
  sim.fail(1, 1);
  sim.worker(1).pod_still_running = true;
  sim.worker(1).node_state = NodeState::kNotReady;
  const Plan plan = sim.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
  EXPECT_EQ(plan.status->failures.at(0).cause, FailureCause::kProgram);
}

// The operator's master secret was replaced, so the coordinator does not accept the workers' key.
TEST(Restarts, ReplaceWorkersWithAStaleKey) {
  JobSimulator sim;
  sim.start();
  sim.observed.key_id = "new";
  EXPECT_TRUE(sim.plan().deletions.empty()) << "older pods have no key id";
  for (Worker& worker : sim.observed.workers) worker.key_id = "new";
  EXPECT_TRUE(sim.plan().deletions.empty());
  sim.worker(1).key_id = "old";
  const Plan plan = sim.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].index, 1);
  EXPECT_EQ(plan.status->restarts.infrastructure, 1);
  EXPECT_EQ(plan.status->failures.at(0).reason, "KeyReplaced");
  sim.settle();
  EXPECT_TRUE(sim.has_worker(1));
  EXPECT_EQ(sim.status().restarts.total(), 1);
}

TEST(Restarts, FollowThePolicyAndTheCause) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    api::TrainJob job = make_job();
    job.spec.worker.restart_policy = c.policy;
    JobSimulator sim(job);
    sim.start();
    sim.fail(1, c.exit_code, c.observed, c.reason);
    const Plan plan = sim.step();
    ASSERT_TRUE(plan.status);
    ASSERT_EQ(plan.status->failures.size(), 1U);
    EXPECT_EQ(plan.status->failures[0].cause, c.cause);
    EXPECT_EQ(plan.status->failures[0].pod_uid, "uid-2");
    EXPECT_EQ(plan.finished, !c.restarts);
    EXPECT_EQ(testing::reason(*plan.status, api::condition::kFailed), c.end);
    const api::RestartCounts& counts = plan.status->restarts;
    EXPECT_EQ(counts.total(), c.restarts ? 1 : 0);
    EXPECT_EQ(counts.program, c.restarts && c.cause == kProgram);
    EXPECT_EQ(counts.infrastructure, c.restarts && c.cause == kInfrastructure);
    EXPECT_EQ(counts.out_of_memory, c.restarts && c.cause == kMemory);
    if (c.restarts) {
      ASSERT_EQ(plan.deletions.size(), 1U);
      EXPECT_EQ(plan.deletions[0].uid, "uid-2");
      sim.settle();
      ASSERT_TRUE(sim.has_worker(1)) << "the first restart is immediate";
      EXPECT_EQ(sim.worker(1).uid, "uid-3");
      EXPECT_EQ(sim.worker(0).uid, "uid-1") << "the other worker stays";
    }
  }
}

TEST(Restarts, CountAFailureInThePlanThatDeletesItsWorkerAndNeverTwice) {
  JobSimulator sim;
  sim.graceful = true;
  sim.start();
  sim.fail(1, 1);
  const Plan first = sim.plan();
  ASSERT_TRUE(first.status);
  EXPECT_EQ(first.status->restarts.program, 1);
  EXPECT_EQ(first.status->counted_pods, std::vector<std::string>{"uid-2"});
  sim.step();
  for (int round = 0; round < 3; ++round) {
    const Plan again = sim.step();
    EXPECT_FALSE(again.status);
    EXPECT_TRUE(again.creations.empty()) << "its name is still in use";
  }
  sim.finish_deletions();
  const Plan after = sim.step();
  ASSERT_EQ(after.creations.size(), 1U);
  EXPECT_EQ(sim.status().restarts.program, 1);
  EXPECT_TRUE(sim.status().counted_pods.empty()) << "the pod is gone";
}

TEST(Restarts, AreNotLostWhenTheStatusWriteFails) {
  JobSimulator sim;
  sim.start();
  sim.fail(1, 1);
  const Plan lost = sim.plan();  // never applied
  EXPECT_EQ(lost, sim.plan());
  sim.step();
  EXPECT_EQ(sim.status().restarts.program, 1);
}

TEST(Restarts, EndTheJobAtTheRestartLimit) {
  api::TrainJob job = make_job();
  job.spec.elastic_policy.max_restarts = 2;
  JobSimulator sim(job);
  sim.start();
  for (int round = 0; round < 2; ++round) {
    sim.fail(0, 3);
    sim.settle();
    sim.pass(seconds(300));
    sim.start();
    EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  }
  sim.fail(1, 3);
  const Plan last = sim.step();
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
  EXPECT_EQ(sim.status().restarts.program, 2) << "the last failure restarted nothing";
  EXPECT_EQ(sim.status().failures.size(), 3U);
  const api::Condition* failed = sim.status().find_condition(api::condition::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, "BackoffLimitExceeded");
  EXPECT_EQ(failed->message,
            "worker 1 (mrpc-worker-1 on node-a) exited with code 3, and 2 of 2 restarts are "
            "used");
  ASSERT_EQ(last.deletions.size(), 1U) << "worker 0 still runs";
  EXPECT_EQ(last.deletions[0].index, 0);
}

// Without the failed worker the others of a torch job cannot communicate and exit, too.
TEST(Restarts, CountOnceIfOneFailureMakesOtherWorkersFail) {
  const struct {
    const char* what;
    api::FailureCause first;
    bool at_once;
    int counted;
  } cases[] = {
      {"a drained node, then the peers", kInfrastructure, false, 0},
      {"a drained node and the peers", kInfrastructure, true, 0},
      {"one program, then its peers", api::FailureCause::kProgram, false, 1},
      {"all programs", api::FailureCause::kProgram, true, 1},
  };
  constexpr int kWorkers = 12;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    JobSimulator sim(make_job(kWorkers));
    sim.job().spec.elastic_policy.max_restarts = c.counted;
    sim.start();
    sim.pass(seconds(60));
    sim.fail(kWorkers - 1, 1, c.first, "Error");
    for (int index = 0; index < kWorkers - 1; ++index) {
      if (!c.at_once) sim.settle();
      sim.fail(index, 1);
      sim.pass(seconds(1));
    }
    sim.start();
    EXPECT_EQ(sim.status().restarts.program, c.counted);
    EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
    sim.fail(0, 1);
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kFailed) << "a new failure, beyond maxRestarts";
  }
}

// Its replacement fails before the job runs again.
TEST(Restarts, CountEachFailureOfTheSameWorker) {
  JobSimulator sim(make_job());
  sim.job().spec.elastic_policy.max_restarts = 2;
  sim.start();
  for (const int counted : {1, 2}) {
    sim.pass(seconds(60));
    sim.settle();
    sim.fail(1, 1);
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kRestarting);
    EXPECT_EQ(sim.status().restarts.program, counted);
  }
  sim.pass(seconds(60));
  sim.settle();
  sim.fail(1, 1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
}

TEST(Restarts, AfterInfrastructureFailuresHaveNoLimit) {
  api::TrainJob job = make_job();
  job.spec.elastic_policy.max_restarts = 0;
  JobSimulator sim(job);
  sim.start();
  for (int round = 0; round < 20; ++round) {
    sim.fail(0, 137, kInfrastructure, "Evicted");
    sim.settle();
    sim.pass(seconds(300));
    sim.start();
  }
  EXPECT_EQ(sim.status().restarts.infrastructure, 20);
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  EXPECT_EQ(sim.status().failures.size(), api::kFailureHistoryLength);
}

// A larger number would change when the status is read again.
TEST(Restarts, AreCountedUpToTheLargestNumberThatAStatusHolds) {
  JobSimulator sim(make_job());
  sim.start();
  sim.status().restarts.infrastructure = api::RestartCounts::kMax - 1;
  for (int round = 0; round < 2; ++round) {
    sim.fail(0, 137, kInfrastructure, "Evicted");
    sim.settle();
    sim.pass(seconds(300));
    sim.start();
    EXPECT_EQ(sim.status().restarts.infrastructure, api::RestartCounts::kMax);
  }
}

TEST(Restarts, WaitLongerEachTime) {
  JobSimulator sim;
  sim.job().spec.elastic_policy.max_restarts = 100;
  sim.start();
  const int expected[] = {0, 1, 2, 4, 8, 16, 32};
  for (const int delay : expected) {
    sim.fail(1, 1);
    sim.settle();
    if (delay > 0) {
      EXPECT_FALSE(sim.has_worker(1)) << delay;
      EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(delay)));
      EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "BackOff");
      sim.pass(seconds(delay) - std::chrono::milliseconds(1) > seconds(0) ? seconds(delay - 1)
                                                                          : seconds(0));
      sim.settle();
      EXPECT_FALSE(sim.has_worker(1)) << "too early";
      sim.pass(seconds(1));
    }
    sim.start();
    EXPECT_TRUE(sim.has_worker(1));
    EXPECT_NE(testing::condition(sim.status(), api::condition::kBlocked), "True");
  }
}

// The history in the status is shorter than such a job's failures of one minute.
TEST(Restarts, WaitLongerEachTimeIfManyWorkersFailTogether) {
  constexpr int kWorkers = 16;
  JobSimulator sim(make_job(kWorkers));
  sim.start();
  for (const int delay : {0, 1, 2, 4, 8, 16, 32}) {
    for (int index = 0; index < kWorkers; ++index) {
      sim.fail(index, 1, kInfrastructure, "TopologyAffinityError");
    }
    sim.settle();
    for (int index = 0; index < kWorkers; ++index) {
      EXPECT_EQ(restart_time(sim.status(), index), sim.now + seconds(delay)) << index;
      EXPECT_EQ(sim.has_worker(index), delay == 0) << index;
    }
    EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), delay > 0 ? "BackOff" : "");
    sim.pass(seconds(delay));
    sim.start();
  }
}

TEST(Restarts, ResetTheDelayAfterTenMinutesWithoutFailures) {
  JobSimulator sim;
  sim.job().spec.elastic_policy.max_restarts = 100;
  sim.start();
  const auto delay_after_failure = [&](int index) {
    sim.fail(index, 1);
    sim.step();
    const auto delay = restart_time(sim.status(), index) - sim.now;
    sim.pass(seconds(10));
    sim.start();
    return delay;
  };
  EXPECT_EQ(restart_time(sim.status(), 0), WallTime{});
  EXPECT_EQ(delay_after_failure(0), seconds(0));
  EXPECT_EQ(delay_after_failure(1), seconds(0)) << "each index has its own series";
  EXPECT_EQ(delay_after_failure(0), seconds(1));
  sim.pass(seconds(590));
  EXPECT_EQ(delay_after_failure(0), seconds(2)) << "ten minutes later";
  sim.pass(seconds(591));
  EXPECT_EQ(delay_after_failure(0), seconds(0));
  sim.pass(seconds(601));
  sim.settle();
  EXPECT_TRUE(sim.status().failing_workers.empty());
}

TEST(Restarts, NeverWaitLongerThanFiveMinutes) {
  api::TrainJobStatus status;
  for (const std::int64_t failures : {11, 12, 40, 1 << 30}) {
    status.failing_workers = {api::FailingWorker{0, failures, testing::kStart, {}, 0}};
    EXPECT_EQ(restart_time(status, 0), testing::kStart + seconds(300)) << failures;
  }
}

TEST(OutOfMemory, RestartsWorkersThatAreKilledTogetherOnce) {
  JobSimulator sim;
  sim.start();
  for (const bool restarts : {true, false}) {
    sim.fail(0, 137, kMemory, "OOMKilled");
    sim.fail(1, 137, kMemory, "OOMKilled");
    sim.settle();
    sim.pass(seconds(60));
    sim.settle();
    EXPECT_EQ(sim.has_worker(0), restarts);
    EXPECT_EQ(sim.has_worker(1), restarts);
    if (restarts) sim.start();
  }
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "OutOfMemory");
}

TEST(OutOfMemory, WaitsHoweverOftenOtherWorkersFail) {
  JobSimulator sim;
  sim.job().spec.elastic_policy.max_restarts = 100;
  sim.start();
  for (int kill = 0; kill < 2; ++kill) {
    sim.fail(1, 137, kMemory, "OOMKilled");
    sim.settle();
    if (kill == 0) sim.start();
  }
  for (int i = 0; i < 12; ++i) {
    sim.fail(0, 1);
    sim.settle();
    sim.pass(seconds(3600));
    sim.settle();
    ASSERT_TRUE(sim.has_worker(0));
    EXPECT_FALSE(sim.has_worker(1));
    sim.run_all();
  }
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "OutOfMemory");
}

TEST(OutOfMemory, RestartsOnceAndThenWaitsForAChangeOfTheJob) {
  JobSimulator sim;
  sim.start();
  sim.fail(1, 137, kMemory, "OOMKilled");
  sim.settle();
  EXPECT_TRUE(sim.has_worker(1));
  sim.start();
  sim.fail(1, 137, kMemory, "OOMKilled");
  sim.settle();
  sim.pass(seconds(3600));
  sim.settle();
  EXPECT_FALSE(sim.has_worker(1));
  EXPECT_FALSE(policy::is_lost(classify(sim.observed, sim.now), sim.worker(0)));
  const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "OutOfMemory");
  EXPECT_EQ(blocked->message,
            "worker 1 (mrpc-worker-1 on node-a) was OOM-killed (memory limit 4Gi), and no step was "
            "completed since its previous OOM kill; raise spec.worker.resources.memory to "
            "restart the worker");
  EXPECT_EQ(sim.status().restarts.out_of_memory, 2);

  sim.job().metadata.generation = 2;  // the user raised the limit
  sim.start();
  EXPECT_TRUE(sim.has_worker(1));
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
}

TEST(OutOfMemory, RestartsAgainAfterProgress) {
  JobSimulator sim;
  sim.start();
  for (int round = 1; round <= 4; ++round) {
    sim.observed.rendezvous = RendezvousView{};
    sim.observed.rendezvous->progress.step = 100 * round;
    sim.fail(1, 137, kMemory, "OOMKilled");
    sim.settle();
    sim.pass(seconds(300));
    sim.start();
    EXPECT_TRUE(sim.has_worker(1)) << round;
  }
  EXPECT_EQ(sim.status().restarts.out_of_memory, 4);
}

TEST(OutOfMemory, EndsAJobThatCannotChange) {
  JobSimulator sim;
  sim.observed.runtime.job_can_change = false;
  sim.start();
  sim.fail(1, 137, kMemory, "OOMKilled");
  sim.settle();
  sim.start();
  sim.fail(1, 137, kMemory, "OOMKilled");
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "OutOfMemory");
}

TEST(CheckpointMissing, WaitsForAChangeOfTheJobInsteadOfRestarting) {
  for (const RestartPolicy policy : {RestartPolicy::kOnFailure, RestartPolicy::kExitCode}) {
    api::TrainJob job = make_job();
    job.spec.worker.restart_policy = policy;
    job.spec.elastic_policy.max_restarts = 0;
    JobSimulator sim(job);
    sim.start();
    sim.fail(0, 20);
    sim.worker(0).last_lines =
        "error: /output: found no valid checkpoint, expected checkpoint-8, which this job has "
        "written, or a later one";
    sim.settle();
    sim.pass(seconds(3600));
    sim.settle();
    EXPECT_FALSE(sim.has_worker(0));
    EXPECT_FALSE(is_final(sim.status().phase));
    const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
    ASSERT_NE(blocked, nullptr);
    EXPECT_EQ(blocked->reason, "CheckpointMissing");
    EXPECT_EQ(blocked->message,
              "worker 0 (mrpc-worker-0 on node-a) exited with code 20 (error: /output: found no "
              "valid checkpoint, expected checkpoint-8, which this job has written, or a later "
              "one); restore the output directory, then suspend and resume the job; or delete the "
              "job and create it again to start over");
    EXPECT_EQ(sim.status().failures.at(0).reason, "CheckpointMissing");

    sim.job().metadata.generation = 2;
    sim.start();
    EXPECT_TRUE(sim.has_worker(0));
    EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
  }
}

TEST(CheckpointMissing, EndsAJobThatCannotChange) {
  JobSimulator sim;
  sim.observed.runtime.job_can_change = false;
  sim.start();
  sim.fail(0, 20);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "CheckpointMissing");
}

TEST(Divergence, EndsAnExactJobWithoutARestart) {
  for (const bool cluster : {true, false}) {
    for (const RestartPolicy policy :
         {RestartPolicy::kOnFailure, RestartPolicy::kAlways, RestartPolicy::kExitCode}) {
      api::TrainJob job = make_job();
      job.spec.worker.restart_policy = policy;
      JobSimulator sim(job);
      sim.observed.runtime.job_can_change = cluster;
      sim.start();
      // The other worker only sees that its peer is gone.
      sim.fail(0, 21);
      sim.fail(1, 144);
      sim.worker(0).last_lines = "error: step 12: the loss is NaN";
      sim.settle();
      EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
      EXPECT_EQ(sim.status().restarts.program, 0);
      EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "TrainingDiverged");
      EXPECT_EQ(sim.status().find_condition(api::condition::kFailed)->message,
                "worker 0 (mrpc-worker-0 on node-a) exited with code 21 (error: step 12: the loss "
                "is NaN); every restart of an exact job diverges at the same step: create a job "
                "with a lower learning_rate or a lower max_grad_norm");
    }
  }
}

// Its next attempt sums in another order.
TEST(Divergence, RestartsAJobThatIsNotExact) {
  for (const auto& [flag, value] :
       {std::pair("exact", "false"), std::pair("gemm_backend", "onednn")}) {
    api::TrainJob job = make_job();
    job.spec.trainer.flags[flag] = value;
    job.spec.elastic_policy.max_restarts = 1;
    JobSimulator sim(job);
    sim.start();
    sim.fail(0, 21);
    sim.settle();
    sim.pass(seconds(300));
    sim.start();
    EXPECT_TRUE(sim.has_worker(0)) << flag;
    EXPECT_EQ(sim.status().restarts.program, 1);
    sim.fail(0, 21);
    sim.settle();
    EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "BackoffLimitExceeded");
  }
}

TEST(PermanentFailure, SaysWhatToChange) {
  const struct {
    int exit_code;
    const char* last_line;
    const char* reason;
    const char* message;
  } cases[] = {
      {2, "tilewright-worker: --seed: found x, expected an integer", "InvalidFlags",
       "worker 1 (mrpc-worker-1 on node-a) exited with code 2 (tilewright-worker: --seed: found x, "
       "expected an integer); a restart cannot fix this: create a job with a corrected "
       "spec.trainer "
       "or spec.worker.env"},
      {14, "tilewright-worker: /out: belongs to job \"a\"", "OutputRefused",
       "worker 1 (mrpc-worker-1 on node-a) exited with code 14 (tilewright-worker: /out: belongs "
       "to job \"a\"); a restart cannot fix this: create a job whose spec.trainer.output is "
       "writable and belongs to no other job, or set spec.trainer.overwrite_output_dir: true"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.reason);
    JobSimulator sim;
    sim.start();
    sim.fail(0, 144);  // it only sees that its peer is gone
    sim.fail(1, c.exit_code);
    sim.worker(1).last_lines = c.last_line;
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
    EXPECT_EQ(sim.status().restarts.total(), 0);
    EXPECT_EQ(sim.status().failures.back().reason, c.reason);
    const api::Condition* failed = sim.status().find_condition(api::condition::kFailed);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->reason, c.reason);
    EXPECT_EQ(failed->message, c.message);
  }
}

// Its pods can run another program, and kubeflow.org/v1 says what their exit codes mean.
TEST(PermanentFailure, IsThatOfATrainJobOnly) {
  for (const bool joined : {false, true}) {
    for (const int exit_code : {2, 14}) {
      JobSimulator sim;
      sim.observed.traits.runs_tilewright = false;
      if (joined) sim.observed.rendezvous.emplace().latest_epoch = 1;
      sim.start();
      sim.fail(1, exit_code);
      const Plan plan = sim.step();
      EXPECT_FALSE(plan.finished) << exit_code;
      EXPECT_EQ(plan.status->failures.at(0).reason, "Error");
    }
  }
}

TEST(DeadNode, IsNotReadyAndSilent) {
  struct {
    bool node_ready, silent, replaced;
  } const cases[] = {
      {true, true, false}, {false, false, false}, {true, false, false}, {false, true, true}};
  for (const auto& c : cases) {
    JobSimulator sim;
    sim.graceful = true;
    sim.start();
    sim.worker(1).node_state = c.node_ready ? NodeState::kReady : NodeState::kNotReady;
    sim.observed.rendezvous = RendezvousView{};
    sim.observed.rendezvous->members[1] = {1, c.silent, false};
    const Plan plan = sim.plan();
    ASSERT_EQ(plan.deletions.size(), c.replaced ? 1U : 0U);
    if (!c.replaced) continue;
    EXPECT_TRUE(plan.deletions[0].force);
    ASSERT_TRUE(plan.status);
    EXPECT_EQ(plan.status->failures[0].reason, "NodeLost");
    EXPECT_EQ(plan.status->failures[0].rank, 1);
    EXPECT_EQ(plan.status->restarts.infrastructure, 1);
    sim.settle();
    EXPECT_EQ(sim.worker(1).uid, "uid-3");
  }
}

TEST(DeadNode, LosesWorkersInEveryPhase) {
  const struct {
    const char* what;
    WorkerPhase phase;
    bool terminating;
  } cases[] = {
      {"runs", WorkerPhase::kRunning, false},
      {"runs, and its deletion is stuck", WorkerPhase::kRunning, true},
      {"was never started", WorkerPhase::kPending, false},
      {"was never started, and its deletion is stuck", WorkerPhase::kPending, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    JobSimulator sim;
    sim.start();
    Worker& worker = sim.worker(1);
    worker.phase = c.phase;
    worker.ready = false;
    if (c.phase == WorkerPhase::kPending) worker.started.reset();
    worker.terminating = c.terminating;
    worker.node_state = NodeState::kUnreachable;
    sim.observed.rendezvous = RendezvousView{};
    RendezvousView& view = *sim.observed.rendezvous;
    view.members[0].rank = 0;
    const Plan early = sim.step();
    EXPECT_TRUE(early.deletions.empty()) << "the coordinator may have just restarted";
    ASSERT_TRUE(early.requeue_after) << "no event reports that it is silent";
    EXPECT_LE(*early.requeue_after, seconds(10));
    sim.pass(seconds(10));
    mark_silent(sim.observed.workers, seconds(10), seconds(10), sim.now, view);
    const Plan plan = sim.plan();
    ASSERT_EQ(plan.deletions.size(), 1U);
    EXPECT_TRUE(plan.deletions[0].force);
    sim.settle();
    EXPECT_EQ(sim.worker(1).uid, "uid-3");
    EXPECT_EQ(sim.status().restarts.infrastructure, 1);
    EXPECT_EQ(sim.status().failures[0].reason, c.terminating ? "Deleted" : "NodeLost");
  }
}

// A node that was just added: its kubelet reports that the network plugin does not run yet.
TEST(DeadNode, IsNotANodeThatReportsThatItIsNotReady) {
  JobSimulator sim;
  sim.settle();
  ASSERT_EQ(sim.worker(1).phase, WorkerPhase::kPending);
  sim.worker(1).node_state = NodeState::kNotReady;
  sim.pass(seconds(60));
  sim.observed.rendezvous = RendezvousView{};
  mark_silent(sim.observed.workers, seconds(60), seconds(10), sim.now, *sim.observed.rendezvous);
  EXPECT_TRUE(sim.plan().deletions.empty());
}

TEST(DeadNode, HasItsWorkerReplacedOnceIfTheJobHasChangedToo) {
  JobSimulator sim;
  sim.settle();
  Worker& worker = sim.worker(1);
  worker.generation = 1;
  sim.block(1, StartProblemCause::kImageNotAvailable);
  worker.node_state = NodeState::kNotReady;
  sim.job().metadata.generation = 2;
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->members[1].silent = true;
  const Plan plan = sim.plan();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
}

TEST(DeadNode, ReplacesNoWorkerWithoutTheRendezvous) {
  JobSimulator sim;
  sim.start();
  sim.worker(1).node_state = NodeState::kNotReady;
  EXPECT_TRUE(sim.plan().deletions.empty()) << "heartbeats are unknown without the rendezvous";
}

TEST(DeadNode, ForceDeletesWorkersStuckInGracefulDeletion) {
  JobSimulator sim;
  sim.start();
  sim.worker(1).terminating = true;  // drained, and then the node died
  sim.worker(1).failure_cause = kInfrastructure;
  sim.worker(1).reason = "EvictionByEvictionAPI";
  sim.step();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1);
  EXPECT_EQ(sim.status().failures[0].reason, "EvictionByEvictionAPI");
  EXPECT_TRUE(sim.plan().deletions.empty());
  sim.worker(1).node_state = NodeState::kNotReady;
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->members[1].silent = true;
  const Plan plan = sim.plan();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
  sim.settle();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1) << "counted once";
}

TEST(DeletedWorker, CountsAsInfrastructureAndIsRecreated) {
  JobSimulator sim;
  sim.graceful = true;
  sim.start();
  sim.worker(0).terminating = true;
  sim.settle();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1);
  EXPECT_EQ(sim.status().failures[0].reason, "Deleted");
  EXPECT_EQ(sim.status().phase, api::Phase::kRestarting);
  sim.fail(0, 143);
  sim.settle();
  EXPECT_EQ(sim.status().restarts.total(), 1) << "its exit code is the result of the deletion";
  sim.finish_deletions();
  sim.start();
  EXPECT_EQ(sim.worker(0).uid, "uid-3");
}

TEST(DeletedWorker, IsCountedWhenItsDeletionWasNotObserved) {
  JobSimulator sim;
  sim.start();
  std::erase_if(sim.observed.workers, [](const Worker& worker) { return worker.index == 1; });
  sim.settle();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1);
  ASSERT_EQ(sim.status().failures.size(), 1U);
  EXPECT_EQ(sim.status().failures[0].reason, "Vanished");
  EXPECT_EQ(sim.status().failures[0].index, 1);
  sim.start();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1);
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
}

TEST(FailureHistory, KeepsTheDetailsOfAFailure) {
  JobSimulator sim;
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.step = 42;
  sim.observed.rendezvous->members[1].rank = 1;
  sim.start();
  sim.pass(seconds(7));
  sim.fail(1, 139);
  sim.worker(1).last_lines = "one\ntwo\nthree\nfour\nfive\n\nsix " + std::string(400, 'x') + "\n";
  sim.step();
  ASSERT_EQ(sim.status().failures.size(), 1U);
  const api::FailureRecord& record = sim.status().failures[0];
  EXPECT_EQ(record.time, testing::kStart + seconds(7));
  EXPECT_EQ(record.index, 1);
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.pod, "mrpc-worker-1");
  EXPECT_EQ(record.node, "node-a");
  EXPECT_EQ(record.signal, 11);
  EXPECT_FALSE(record.exit_code);
  EXPECT_EQ(record.step, 42);
  ASSERT_EQ(record.last_lines.size(), api::kFailureLogLines);
  EXPECT_EQ(record.last_lines[0], "two");
  EXPECT_EQ(record.last_lines[4].size(), api::kFailureLogLineBytes);
}

// A process's socket closes milliseconds after its death; the kubelet reports it later.
TEST(FailureHistory, HasTheRankOfAWorkerThatTheRendezvousLostFirst) {
  JobSimulator sim(make_job(3));
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  for (int index = 0; index < 3; ++index) sim.observed.rendezvous->members[index].rank = index;
  sim.settle();
  sim.pass(seconds(7));
  // The epoch has ended for the other workers too.
  sim.observed.rendezvous->lost_processes.push_back({2, 0, 2, sim.now});
  sim.observed.rendezvous->members = {{0, {}}, {1, {}}};
  sim.settle();
  EXPECT_TRUE(sim.status().failures.empty());
  sim.pass(seconds(1));
  sim.fail(2, 139);
  sim.step();
  ASSERT_EQ(sim.status().failures.size(), 1U);
  EXPECT_EQ(sim.status().failures[0].rank, 2);
}

TEST(FailureHistory, DoesNotUseTheRankOfAnEarlierWorker) {
  JobSimulator sim;
  sim.start();
  sim.pass(seconds(7));
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->lost_processes.push_back({1, 0, 1, sim.now});
  sim.fail(1, 139);
  sim.settle();
  ASSERT_EQ(sim.status().failures.size(), 1U);
  EXPECT_EQ(sim.status().failures[0].rank, 1);
  sim.pass(seconds(30));
  sim.start();
  sim.pass(seconds(1));
  sim.fail(1, 139);  // before it has joined
  sim.step();
  ASSERT_EQ(sim.status().failures.size(), 2U);
  EXPECT_EQ(sim.status().failures[1].rank, -1);
}

// A worker with several processes has the rank of its first one.
TEST(FailureHistory, HasTheLowestLastRankOfTheProcesses) {
  JobSimulator sim;
  sim.start();
  sim.pass(seconds(7));
  sim.observed.rendezvous = RendezvousView{};
  const WallTime lost = sim.now;
  // Process 1 died and rejoined in a larger world; then both died.
  sim.observed.rendezvous->lost_processes = {
      {1, 1, 1, lost}, {0, 0, 0, lost}, {1, 1, 3, lost}, {1, 0, 2, lost}};
  sim.fail(1, 137);
  sim.step();
  EXPECT_EQ(sim.status().failures.at(0).rank, 2);
}

TEST(FailureHistory, EndsTheMessageWithTheLastLineOfTheLog) {
  JobSimulator sim;
  sim.start();
  sim.fail(1, 11);
  sim.worker(1).last_lines = "starting\nmodel: no such folder\n";
  const Plan plan = sim.step();
  EXPECT_EQ(plan.events.at(0).message,
            "worker 1 (mrpc-worker-1 on node-a) exited with code 11 (model: no such folder)");
}

TEST(SimultaneousFailures, AreEvaluatedTogether) {
  api::TrainJob job = make_job(3);
  job.spec.elastic_policy.max_restarts = 0;
  JobSimulator sim(job);
  sim.start();
  for (int index = 0; index < 3; ++index) sim.fail(index, 1);
  const Plan plan = sim.step();
  EXPECT_TRUE(plan.finished);
  EXPECT_EQ(sim.status().failures.size(), 3U);
  EXPECT_EQ(sim.status().restarts.total(), 0) << "none was restarted";
}

}  // namespace
}  // namespace tilewright::policy
