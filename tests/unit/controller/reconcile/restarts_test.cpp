// Which failures are tried again, how they are counted and when.
#include "controller/reconcile/restarts.h"

#include <gtest/gtest.h>

#include "controller/reconcile/observe_rendezvous.h"
#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using api::FailureCause;
using api::RestartPolicy;
using std::chrono::seconds;
using testing::make_job;
using testing::World;

struct Case {
  const char* what;
  RestartPolicy policy;
  int exit_code;
  const char* reason;
  bool again;
  FailureCause cause;
  const char* end;  // the reason of the condition Failed
};

constexpr auto kProgram = FailureCause::kProgram;
constexpr auto kInfrastructure = FailureCause::kInfrastructure;
constexpr auto kMemory = FailureCause::kOutOfMemory;

const Case kCases[] = {
    {"OnFailure, exit 1", RestartPolicy::kOnFailure, 1, "Error", true, kProgram, ""},
    {"OnFailure, exit 137", RestartPolicy::kOnFailure, 137, "Error", true, kProgram, ""},
    {"Always, exit 2", RestartPolicy::kAlways, 2, "Error", true, kProgram, ""},
    {"Always, evicted", RestartPolicy::kAlways, 137, "Evicted", true, kInfrastructure, ""},
    {"Never, exit 1", RestartPolicy::kNever, 1, "Error", false, kProgram, "RestartPolicyNever"},
    {"Never, SIGKILL", RestartPolicy::kNever, 137, "Error", false, kProgram, "RestartPolicyNever"},
    {"Never, evicted", RestartPolicy::kNever, 137, "Evicted", false, kInfrastructure,
     "RestartPolicyNever"},
    {"ExitCode, exit 1", RestartPolicy::kExitCode, 1, "Error", false, kProgram,
     "PermanentExitCode"},
    {"ExitCode, exit 127", RestartPolicy::kExitCode, 127, "Error", false, kProgram,
     "PermanentExitCode"},
    {"ExitCode, exit 128", RestartPolicy::kExitCode, 128, "Error", true, kProgram, ""},
    {"ExitCode, SIGKILL", RestartPolicy::kExitCode, 137, "Error", true, kProgram, ""},
    {"ExitCode, SIGSEGV", RestartPolicy::kExitCode, 139, "Error", true, kProgram, ""},
    {"ExitCode, evicted with exit 1", RestartPolicy::kExitCode, 1, "Evicted", true, kInfrastructure,
     ""},
    {"ExitCode, preempted", RestartPolicy::kExitCode, 143, "PreemptionByScheduler", true,
     kInfrastructure, ""},
    {"OnFailure, drained", RestartPolicy::kOnFailure, 143, "EvictionByEvictionAPI", true,
     kInfrastructure, ""},
    {"OnFailure, node shut down", RestartPolicy::kOnFailure, 143, "NodeShutdown", true,
     kInfrastructure, ""},
    {"OnFailure, the peers went away", RestartPolicy::kOnFailure, 144, "Error", true,
     kInfrastructure, ""},
    {"OnFailure, out of memory", RestartPolicy::kOnFailure, 137, "OOMKilled", true, kMemory, ""},
    {"ExitCode, out of memory", RestartPolicy::kExitCode, 137, "OOMKilled", true, kMemory, ""},
    {"Never, out of memory", RestartPolicy::kNever, 137, "OOMKilled", false, kMemory,
     "RestartPolicyNever"},
};

// Its sidecar runs on, on a node that does not answer any more: nobody else would end that pod.
TEST(Restarts, ForceAwayAPodThatAnsweredNoMoreAfterItsWorkersEnd) {
  World world;
  world.start();
  world.observed.progress.emplace().members[1].silent = true;
  world.fail(1, 1);
  world.worker(1).pod_goes_on = true;
  world.worker(1).node_ready = false;
  const Plan plan = world.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
  EXPECT_EQ(plan.status->failures.at(0).cause, FailureCause::kProgram);
}

// The operator's master secret was made anew: it takes another key for proof than theirs.
TEST(Restarts, ReplaceWorkersWhoseKeyNobodyTakesAnyMore) {
  World world;
  world.start();
  world.observed.key_id = "new";
  EXPECT_TRUE(world.plan().deletions.empty()) << "of older pods nobody knows";
  for (Worker& worker : world.observed.workers) worker.key_id = "new";
  EXPECT_TRUE(world.plan().deletions.empty());
  world.worker(1).key_id = "old";
  const Plan plan = world.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].index, 1);
  EXPECT_EQ(plan.status->restarts.infrastructure, 1);
  EXPECT_EQ(plan.status->failures.at(0).reason, "KeyReplaced");
  world.settle();
  EXPECT_TRUE(world.has_worker(1));
  EXPECT_EQ(world.status().restarts.total(), 1);
}

TEST(Restarts, FollowThePolicyAndTheCause) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    api::TrainJob job = make_job();
    job.spec.worker.restart_policy = c.policy;
    World world(job);
    world.start();
    world.fail(1, c.exit_code, c.reason);
    const Plan plan = world.step();
    ASSERT_TRUE(plan.status);
    ASSERT_EQ(plan.status->failures.size(), 1U);
    EXPECT_EQ(plan.status->failures[0].cause, c.cause);
    EXPECT_EQ(plan.status->failures[0].pod_uid, "uid-2");
    EXPECT_EQ(plan.finished, !c.again);
    EXPECT_EQ(testing::reason(*plan.status, api::condition::kFailed), c.end);
    const api::RestartCounts& counts = plan.status->restarts;
    EXPECT_EQ(counts.total(), c.again ? 1 : 0);
    EXPECT_EQ(counts.program, c.again && c.cause == kProgram);
    EXPECT_EQ(counts.infrastructure, c.again && c.cause == kInfrastructure);
    EXPECT_EQ(counts.out_of_memory, c.again && c.cause == kMemory);
    if (c.again) {
      ASSERT_EQ(plan.deletions.size(), 1U);
      EXPECT_EQ(plan.deletions[0].uid, "uid-2");
      world.settle();
      ASSERT_TRUE(world.has_worker(1)) << "the first restart comes at once";
      EXPECT_EQ(world.worker(1).uid, "uid-3");
      EXPECT_EQ(world.worker(0).uid, "uid-1") << "the survivor stays";
    }
  }
}

TEST(Restarts, CountAFailureInThePlanThatDeletesItsWorkerAndNeverTwice) {
  World world;
  world.graceful = true;
  world.start();
  world.fail(1, 1);
  const Plan first = world.plan();
  ASSERT_TRUE(first.status);
  EXPECT_EQ(first.status->restarts.program, 1);
  EXPECT_EQ(first.status->counted_pods, std::vector<std::string>{"uid-2"});
  world.step();
  for (int look = 0; look < 3; ++look) {
    const Plan again = world.step();
    EXPECT_FALSE(again.status);
    EXPECT_TRUE(again.creations.empty()) << "its name is still taken";
  }
  world.finish_deletions();
  const Plan after = world.step();
  ASSERT_EQ(after.creations.size(), 1U);
  EXPECT_EQ(world.status().restarts.program, 1);
  EXPECT_TRUE(world.status().counted_pods.empty()) << "gone, so there is nothing to remember";
}

TEST(Restarts, AreNotForgottenWhenTheStatusWriteFails) {
  World world;
  world.start();
  world.fail(1, 1);
  const Plan lost = world.plan();  // carried out by nobody
  EXPECT_EQ(lost, world.plan());
  world.step();
  EXPECT_EQ(world.status().restarts.program, 1);
}

TEST(Restarts, EndTheJobWhenTheBudgetIsUsedUp) {
  api::TrainJob job = make_job();
  job.spec.elastic_policy.max_restarts = 2;
  World world(job);
  world.start();
  for (int round = 0; round < 2; ++round) {
    world.fail(0, 3);
    world.settle();
    world.pass(seconds(300));
    world.start();
    EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  }
  world.fail(1, 3);
  const Plan last = world.step();
  EXPECT_TRUE(last.finished);
  EXPECT_EQ(world.status().phase, api::Phase::kFailed);
  EXPECT_EQ(world.status().restarts.program, 2) << "the last failure restarted nothing";
  EXPECT_EQ(world.status().failures.size(), 3U);
  const api::Condition* failed = world.status().find_condition(api::condition::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, "BackoffLimitExceeded");
  EXPECT_EQ(failed->message,
            "worker 1 (mrpc-worker-1 on node-a) ended with exit code 3, and 2 of 2 restarts are "
            "used up");
  ASSERT_EQ(last.deletions.size(), 1U) << "worker 0 still runs";
  EXPECT_EQ(last.deletions[0].index, 0);
}

TEST(Restarts, OfInfrastructureHaveNoLimit) {
  api::TrainJob job = make_job();
  job.spec.elastic_policy.max_restarts = 0;
  World world(job);
  world.start();
  for (int round = 0; round < 20; ++round) {
    world.fail(0, 137, "Evicted");
    world.settle();
    world.pass(seconds(300));
    world.start();
  }
  EXPECT_EQ(world.status().restarts.infrastructure, 20);
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  EXPECT_EQ(world.status().failures.size(), api::kLedgerLength);
}

TEST(Restarts, WaitLongerEachTime) {
  World world;
  world.job().spec.elastic_policy.max_restarts = 100;
  world.start();
  const int expected[] = {0, 1, 2, 4, 8, 16, 32};
  for (const int delay : expected) {
    world.fail(1, 1);
    world.settle();
    if (delay > 0) {
      EXPECT_FALSE(world.has_worker(1)) << delay;
      EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(delay)));
      EXPECT_EQ(testing::reason(world.status(), api::condition::kBlocked), "BackOff");
      world.pass(seconds(delay) - std::chrono::milliseconds(1) > seconds(0) ? seconds(delay - 1)
                                                                            : seconds(0));
      world.settle();
      EXPECT_FALSE(world.has_worker(1)) << "too early";
      world.pass(seconds(1));
    }
    world.start();
    EXPECT_TRUE(world.has_worker(1));
    EXPECT_NE(testing::condition(world.status(), api::condition::kBlocked), "True");
  }
}

TEST(Restarts, ForgetTheDelayAfterTenQuietMinutes) {
  api::TrainJobStatus status;
  const auto add = [&](int index, int at) {
    api::FailureRecord record;
    record.index = index;
    record.time = testing::kStart + seconds(at);
    status.failures.push_back(record);
  };
  EXPECT_EQ(restart_time(status, 0), WallTime{});
  add(0, 0);
  EXPECT_EQ(restart_time(status, 0), testing::kStart);
  add(1, 5);
  add(0, 10);
  EXPECT_EQ(restart_time(status, 0), testing::kStart + seconds(11));
  EXPECT_EQ(restart_time(status, 1), testing::kStart + seconds(5)) << "each index by itself";
  add(0, 611);
  EXPECT_EQ(restart_time(status, 0), testing::kStart + seconds(611));
}

TEST(Restarts, NeverWaitLongerThanFiveMinutes) {
  api::TrainJobStatus status;
  for (int i = 0; i < 40; ++i) {
    api::FailureRecord record;
    record.time = testing::kStart;
    status.failures.push_back(record);
    EXPECT_LE(restart_time(status, 0), testing::kStart + seconds(300));
    if (status.failures.size() == api::kLedgerLength)
      status.failures.erase(status.failures.begin());
  }
}

TEST(OutOfMemory, IsTriedOnceAndThenWaitsForTheJobToChange) {
  World world;
  world.start();
  world.fail(1, 137, "OOMKilled");
  world.settle();
  EXPECT_TRUE(world.has_worker(1));
  world.start();
  world.fail(1, 137, "OOMKilled");
  world.settle();
  world.pass(seconds(3600));
  world.settle();
  EXPECT_FALSE(world.has_worker(1));
  EXPECT_FALSE(reconcile::is_lost(sort(world.observed, world.now), world.worker(0)));
  const api::Condition* blocked = world.status().find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "OutOfMemory");
  EXPECT_EQ(blocked->message,
            "worker 1 (mrpc-worker-1 on node-a) was killed for using more than its 4Gi of memory "
            "again without progress; raise spec.worker.resources.memory: it is started again as "
            "soon as the job changes");
  EXPECT_EQ(world.status().restarts.out_of_memory, 2);

  world.job().metadata.generation = 2;  // the user raised it
  world.start();
  EXPECT_TRUE(world.has_worker(1));
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "False");
}

TEST(OutOfMemory, IsTriedAgainAfterProgress) {
  World world;
  world.start();
  for (int round = 1; round <= 4; ++round) {
    world.observed.progress = Progress{};
    world.observed.progress->step = 100 * round;
    world.fail(1, 137, "OOMKilled");
    world.settle();
    world.pass(seconds(300));
    world.start();
    EXPECT_TRUE(world.has_worker(1)) << round;
  }
  EXPECT_EQ(world.status().restarts.out_of_memory, 4);
}

TEST(OutOfMemory, EndsAJobThatCannotChange) {
  World world;
  world.observed.runtime.job_can_change = false;
  world.start();
  world.fail(1, 137, "OOMKilled");
  world.settle();
  world.start();
  world.fail(1, 137, "OOMKilled");
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(world.status(), api::condition::kFailed), "OutOfMemory");
}

TEST(DeadNode, IsNotReadyAndSilent) {
  struct {
    bool node_ready, silent, replaced;
  } const cases[] = {
      {true, true, false}, {false, false, false}, {true, false, false}, {false, true, true}};
  for (const auto& c : cases) {
    World world;
    world.graceful = true;
    world.start();
    world.worker(1).node_ready = c.node_ready;
    world.observed.progress = Progress{};
    world.observed.progress->members[1] = {1, c.silent, false};
    const Plan plan = world.plan();
    ASSERT_EQ(plan.deletions.size(), c.replaced ? 1U : 0U);
    if (!c.replaced) continue;
    EXPECT_TRUE(plan.deletions[0].force);
    ASSERT_TRUE(plan.status);
    EXPECT_EQ(plan.status->failures[0].reason, "NodeLost");
    EXPECT_EQ(plan.status->failures[0].rank, 1);
    EXPECT_EQ(plan.status->restarts.infrastructure, 1);
    world.settle();
    EXPECT_EQ(world.worker(1).uid, "uid-3");
  }
}

TEST(DeadNode, TakesWorkersOfEveryPhaseAlong) {
  const struct {
    const char* what;
    WorkerPhase phase;
    bool terminating;
  } cases[] = {
      {"runs", WorkerPhase::kRunning, false},
      {"runs, and its deletion hangs", WorkerPhase::kRunning, true},
      {"was never started", WorkerPhase::kPending, false},
      {"was never started, and its deletion hangs", WorkerPhase::kPending, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    World world;
    world.start();
    Worker& worker = world.worker(1);
    worker.phase = c.phase;
    worker.ready = false;
    if (c.phase == WorkerPhase::kPending) worker.started.reset();
    worker.terminating = c.terminating;
    worker.node_ready = false;
    world.observed.progress = Progress{};
    Progress& progress = *world.observed.progress;
    progress.members[0].rank = 0;
    const Plan early = world.step();
    EXPECT_TRUE(early.deletions.empty()) << "the coordinator may be new";
    ASSERT_TRUE(early.requeue_after) << "that it is silent comes with no event";
    EXPECT_LE(*early.requeue_after, seconds(10));
    world.pass(seconds(10));
    mark_silent(world.observed.workers, seconds(10), seconds(10), world.now, progress);
    const Plan plan = world.plan();
    ASSERT_EQ(plan.deletions.size(), 1U);
    EXPECT_TRUE(plan.deletions[0].force);
    world.settle();
    EXPECT_EQ(world.worker(1).uid, "uid-3");
    EXPECT_EQ(world.status().restarts.infrastructure, 1);
    EXPECT_EQ(world.status().failures[0].reason, c.terminating ? "Deleted" : "NodeLost");
  }
}

TEST(DeadNode, IsLeftOnceThoughTheJobHasChangedToo) {
  World world;
  world.settle();
  Worker& worker = world.worker(1);
  worker.generation = 1;
  worker.reason = "ImagePullBackOff";
  worker.node_ready = false;
  world.job().metadata.generation = 2;
  world.observed.progress = Progress{};
  world.observed.progress->members[1].silent = true;
  const Plan plan = world.plan();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
}

TEST(DeadNode, KeepsAJobWaitingThatKnowsNothingOfItsMembers) {
  World world;
  world.start();
  world.worker(1).node_ready = false;
  EXPECT_TRUE(world.plan().deletions.empty()) << "silence cannot be told without the rendezvous";
}

TEST(DeadNode, IsForcedThroughWhereAGracefulDeletionHangs) {
  World world;
  world.start();
  world.worker(1).terminating = true;  // drained, and then the node died
  world.worker(1).reason = "EvictionByEvictionAPI";
  world.step();
  EXPECT_EQ(world.status().restarts.infrastructure, 1);
  EXPECT_EQ(world.status().failures[0].reason, "EvictionByEvictionAPI");
  EXPECT_TRUE(world.plan().deletions.empty());
  world.worker(1).node_ready = false;
  world.observed.progress = Progress{};
  world.observed.progress->members[1].silent = true;
  const Plan plan = world.plan();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force);
  world.settle();
  EXPECT_EQ(world.status().restarts.infrastructure, 1) << "counted before";
}

TEST(DeletedWorker, CountsAsInfrastructureAndComesBack) {
  World world;
  world.graceful = true;
  world.start();
  world.worker(0).terminating = true;
  world.settle();
  EXPECT_EQ(world.status().restarts.infrastructure, 1);
  EXPECT_EQ(world.status().failures[0].reason, "Deleted");
  EXPECT_EQ(world.status().phase, api::Phase::kRestarting);
  world.fail(0, 143);
  world.settle();
  EXPECT_EQ(world.status().restarts.total(), 1) << "its exit code is the answer to the deletion";
  world.finish_deletions();
  world.start();
  EXPECT_EQ(world.worker(0).uid, "uid-3");
}

TEST(DeletedWorker, CountsWhenNobodySawItGo) {
  World world;
  world.start();
  std::erase_if(world.observed.workers, [](const Worker& worker) { return worker.index == 1; });
  world.settle();
  EXPECT_EQ(world.status().restarts.infrastructure, 1);
  ASSERT_EQ(world.status().failures.size(), 1U);
  EXPECT_EQ(world.status().failures[0].reason, "Vanished");
  EXPECT_EQ(world.status().failures[0].index, 1);
  world.start();
  EXPECT_EQ(world.status().restarts.infrastructure, 1);
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
}

TEST(Ledger, KeepsWhatAPersonWantsToKnow) {
  World world;
  world.observed.progress = Progress{};
  world.observed.progress->step = 42;
  world.observed.progress->members[1].rank = 1;
  world.start();
  world.pass(seconds(7));
  world.fail(1, 139);
  world.worker(1).last_lines = "one\ntwo\nthree\nfour\nfive\n\nsix " + std::string(400, 'x') + "\n";
  world.step();
  ASSERT_EQ(world.status().failures.size(), 1U);
  const api::FailureRecord& record = world.status().failures[0];
  EXPECT_EQ(record.time, testing::kStart + seconds(7));
  EXPECT_EQ(record.index, 1);
  EXPECT_EQ(record.rank, 1);
  EXPECT_EQ(record.pod, "mrpc-worker-1");
  EXPECT_EQ(record.node, "node-a");
  EXPECT_EQ(record.signal, 11);
  EXPECT_FALSE(record.exit_code);
  EXPECT_EQ(record.step, 42);
  ASSERT_EQ(record.last_lines.size(), api::kLedgerLines);
  EXPECT_EQ(record.last_lines[0], "two");
  EXPECT_EQ(record.last_lines[4].size(), api::kLedgerLineBytes);
}

// A process' socket closes milliseconds after its death; its pod reads Failed when its kubelet says
// so.
TEST(Ledger, SaysTheRankOfAWorkerThatTheRendezvousLostBeforeItsPodReadFailed) {
  World world(make_job(3));
  world.start();
  world.observed.progress = Progress{};
  for (int index = 0; index < 3; ++index) world.observed.progress->members[index].rank = index;
  world.settle();
  world.pass(seconds(7));
  // The epoch is over for the others, too.
  world.observed.progress->losses.push_back({2, 0, 2, world.now});
  world.observed.progress->members = {{0, {}}, {1, {}}};
  world.settle();
  EXPECT_TRUE(world.status().failures.empty());
  world.pass(seconds(1));
  world.fail(2, 139);
  world.step();
  ASSERT_EQ(world.status().failures.size(), 1U);
  EXPECT_EQ(world.status().failures[0].rank, 2);
}

TEST(Ledger, SaysNoRankOfAWorkerWhosePredecessorHadOne) {
  World world;
  world.start();
  world.pass(seconds(7));
  world.observed.progress = Progress{};
  world.observed.progress->losses.push_back({1, 0, 1, world.now});
  world.fail(1, 139);
  world.settle();
  ASSERT_EQ(world.status().failures.size(), 1U);
  EXPECT_EQ(world.status().failures[0].rank, 1);
  world.pass(seconds(30));
  world.start();
  world.pass(seconds(1));
  world.fail(1, 139);  // before it has joined
  world.step();
  ASSERT_EQ(world.status().failures.size(), 2U);
  EXPECT_EQ(world.status().failures[1].rank, -1);
}

// A worker of several processes has the rank of its first one.
TEST(Ledger, TakesTheLowestRankThatItsProcessesHadLast) {
  World world;
  world.start();
  world.pass(seconds(7));
  world.observed.progress = Progress{};
  const WallTime lost = world.now;
  // Process 1 died first and came back in a larger world; then both went.
  world.observed.progress->losses = {
      {1, 1, 1, lost}, {0, 0, 0, lost}, {1, 1, 3, lost}, {1, 0, 2, lost}};
  world.fail(1, 137);
  world.step();
  EXPECT_EQ(world.status().failures.at(0).rank, 2);
}

TEST(Ledger, EndsItsSentenceWithTheLastLineOfTheLog) {
  World world;
  world.start();
  world.fail(1, 11);
  world.worker(1).last_lines = "starting\nmodel: no such folder\n";
  const Plan plan = world.step();
  EXPECT_EQ(plan.events.at(0).message,
            "worker 1 (mrpc-worker-1 on node-a) ended with exit code 11 (model: no such folder)");
}

TEST(WholeGroupFailing, IsJudgedTogether) {
  api::TrainJob job = make_job(3);
  job.spec.elastic_policy.max_restarts = 2;
  World world(job);
  world.start();
  for (int index = 0; index < 3; ++index) world.fail(index, 1);
  const Plan plan = world.step();
  EXPECT_TRUE(plan.finished) << "three restarts of two allowed ones";
  EXPECT_EQ(world.status().failures.size(), 3U);
  EXPECT_EQ(world.status().restarts.total(), 0) << "none was restarted";
}

}  // namespace
}  // namespace tilewright::reconcile
