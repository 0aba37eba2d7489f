// When a job has succeeded.
#include "controller/reconcile/success.h"

#include <gtest/gtest.h>

#include "controller/reconcile/status.h"
#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;
using testing::World;

TEST(Success, ComesWithTheEndOfAllWorkers) {
  World world;
  world.start();
  world.observed.progress = Progress{};
  world.observed.progress->step = world.observed.progress->total_steps = 230;
  world.observed.progress->metrics = {{"accuracy", 0.8725}, {"f1", 0.9}};
  world.pass(seconds(60));
  world.succeed(1);
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kRunning) << "worker 0 still writes";
  EXPECT_EQ(world.observed.workers.size(), 2U) << "who is done is not started again";
  world.succeed(0);
  const Plan plan = world.step();
  EXPECT_TRUE(plan.finished);
  EXPECT_FALSE(plan.membership) << "joiners are told that it is over";
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(world.status().completion_time, testing::kStart + seconds(60));
  const api::Condition* succeeded = world.status().find_condition(api::condition::kSucceeded);
  ASSERT_NE(succeeded, nullptr);
  EXPECT_EQ(succeeded->reason, "TrainingComplete");
  EXPECT_EQ(succeeded->message,
            "the training is complete after 230 steps: accuracy 0.8725, f1 0.9");
  EXPECT_EQ(world.status().restarts.total(), 0);
  EXPECT_EQ(world.status().replicas.succeeded, 2);
}

TEST(Success, TellsWhatTheStatusKnowsWhenTheWorkersAreGone) {
  World world;
  world.start();
  world.observed.progress = Progress{};
  world.observed.progress->step = world.observed.progress->total_steps = 230;
  world.settle();
  world.observed.progress->metrics = {{"accuracy", 0.8725}};
  EXPECT_TRUE(world.step().status) << "results are written at once";
  world.observed.progress.reset();
  world.succeed(0);
  world.succeed(1);
  world.settle();
  EXPECT_EQ(world.status().find_condition(api::condition::kSucceeded)->message,
            "the training is complete after 230 steps: accuracy 0.8725");
}

TEST(Success, AwaitsTheOthersForHalfAMinute) {
  World world;
  world.start();
  world.succeed(0);
  EXPECT_FALSE(world.step().finished);
  world.pass(seconds(10));
  world.step();  // the counts have settled
  EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(20)));
  world.pass(seconds(20));
  const Plan done = world.step();
  EXPECT_TRUE(done.finished);
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
  ASSERT_EQ(done.deletions.size(), 1U) << "the one that would not end";
  EXPECT_EQ(done.deletions[0].index, 1);
}

TEST(Success, DoesNotCareHowTheOthersEnd) {
  World world;
  world.start();
  world.succeed(0);
  world.fail(1, 144);
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(world.status().restarts.total(), 0);
  EXPECT_TRUE(world.status().failures.empty());
}

TEST(Success, WinsOverADeadlineThatPassesMeanwhile) {
  World world;
  world.job().spec.run_policy.active_deadline_seconds = 10;
  world.start();
  world.succeed(0);
  world.pass(seconds(30));
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
}

// Ranks follow the seats of those present: with minReplicas 1 any worker may be rank 0. And
// whichever ends with 0, the output stands.
TEST(Success, IsToldByAnyWorker) {
  struct Case {
    const char* what;
    // Of workers 0, 1, ...: '0' ended with 0, '1' failed, 'r' runs, 'p' is being started, 'u' has
    // no node, 'i' has no image, '-' is not there.
    const char* workers;
    const char* now;    // what the job is at once: Succeeded, or "" (it is not over)
    const char* later;  // half a minute later
  } const cases[] = {
      {"all ended well", "00", "Succeeded", "Succeeded"},
      {"worker 0 found no node, so worker 1 was rank 0", "u0", "Succeeded", "Succeeded"},
      {"worker 0 cannot be started", "i0", "Succeeded", "Succeeded"},
      {"worker 0 waits to be created again", "-0", "Succeeded", "Succeeded"},
      {"worker 0 may have run, and its kubelet is slow to tell", "p0", "", "Succeeded"},
      {"worker 0 is at its end", "r0", "", "Succeeded"},
      {"worker 1 is at its end", "0r", "", "Succeeded"},
      {"worker 0 was killed when all was done", "10", "Succeeded", "Succeeded"},
      {"worker 1 lost its peers when all was done", "01", "Succeeded", "Succeeded"},
      {"nobody has ended", "rr", "", ""},
      {"nobody has ended well", "1r", "", ""},
      {"nobody has run", "uu", "", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    World world;
    world.job().spec.elastic_policy.min_replicas = 1;
    world.start();
    for (int index = 0; index < 2; ++index) {
      Worker& worker = world.worker(index);
      const char state = c.workers[index];
      if (state == '0') world.succeed(index);
      if (state == '1') world.fail(index, 144);
      if (state == 'p' || state == 'u' || state == 'i') {
        worker.phase = WorkerPhase::kPending;
        worker.ready = false;
        worker.started.reset();
        if (state == 'u') worker.node.clear();
        worker.reason = state == 'u' ? "Unschedulable" : state == 'i' ? "ImagePullBackOff" : "";
      }
    }
    for (int index = 0; index < 2; ++index) {
      if (c.workers[index] != '-') continue;
      std::erase_if(world.observed.workers, [&](const Worker& w) { return w.index == index; });
    }
    const auto outcome = [&] {
      return is_final(world.status().phase) ? std::string(api::to_string(world.status().phase))
                                            : "";
    };
    world.settle();
    EXPECT_EQ(outcome(), c.now);
    world.pass(seconds(30));
    world.settle();
    EXPECT_EQ(outcome(), c.later);
    if (*c.later == '\0') continue;
    EXPECT_EQ(world.status().restarts.total(), 0) << "nothing is counted when all is done";
    for (const Worker& worker : world.observed.workers) {
      EXPECT_TRUE(has_ended(worker)) << "cleanPodPolicy Running keeps what has ended, and no other";
    }
  }
}

TEST(Success, IsNotUndoneByADeadlineThatOnlyAWorkerWithoutANodeWaitsFor) {
  World world;
  world.job().spec.elastic_policy.min_replicas = 1;
  world.job().spec.run_policy.active_deadline_seconds = 10;
  world.settle();
  world.worker(0).node.clear();
  world.worker(0).reason = "Unschedulable";
  world.worker(1).phase = WorkerPhase::kRunning;
  world.settle();
  world.succeed(1);
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
  world.pass(seconds(60));
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
}

TEST(Success, IsToldByTheScaledDownToo) {
  World world;
  world.job().spec.elastic_policy.min_replicas = 1;
  world.start();
  world.succeed(1);
  world.worker(0).phase = WorkerPhase::kPending;
  world.worker(0).node.clear();
  world.job().spec.worker.replicas = 1;
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
}

// What the rendezvous knows once rank 0 has reported, though no kubelet has told of an end.
class OnceComplete : public ::testing::Test {
 protected:
  OnceComplete() {
    world_.start();
    world_.observed.progress = Progress{};
    world_.observed.progress->step = world_.observed.progress->total_steps = 230;
    world_.settle();
    world_.observed.progress->complete = true;
    world_.settle();
  }
  World world_;
};

TEST_F(OnceComplete, TheEndsOfTheWorkersAreAwaitedForAWhile) {
  EXPECT_EQ(world_.status().training_complete_time, testing::kStart);
  EXPECT_EQ(world_.status().phase, api::Phase::kRunning);
  world_.pass(seconds(119));
  world_.settle();
  EXPECT_EQ(world_.status().phase, api::Phase::kRunning);
  EXPECT_EQ(world_.plan().requeue_after, WallTime::duration(seconds(1)));
  world_.pass(seconds(1));
  EXPECT_TRUE(world_.step().finished);
  EXPECT_EQ(world_.status().phase, api::Phase::kSucceeded);
  EXPECT_EQ(world_.status().training_complete_time, testing::kStart);
}

TEST_F(OnceComplete, AnExitShortensTheWait) {
  world_.pass(seconds(5));
  world_.succeed(1);
  world_.pass(seconds(30));
  world_.settle();
  EXPECT_EQ(world_.status().phase, api::Phase::kSucceeded);
}

TEST_F(OnceComplete, ADeadNodeNeitherHoldsTheJobUpNorIsCounted) {
  Worker& zero = world_.worker(0);
  zero.node_ready = false;
  world_.succeed(1);
  world_.observed.progress->members[0].silent = true;
  world_.settle();
  EXPECT_TRUE(world_.status().failures.empty());
  world_.pass(seconds(30));
  const Plan plan = world_.step();
  EXPECT_EQ(world_.status().phase, api::Phase::kSucceeded);
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_TRUE(plan.deletions[0].force) << "no kubelet will confirm it";
  EXPECT_EQ(world_.status().restarts.total(), 0);
}

TEST_F(OnceComplete, TheEndsOfWorkersDoNotMatter) {
  world_.fail(0, 137, "Evicted");
  world_.fail(1, 144);
  world_.settle();
  EXPECT_EQ(world_.status().phase, api::Phase::kSucceeded);
  EXPECT_TRUE(world_.status().failures.empty());
}

TEST_F(OnceComplete, ANewLeaderKnowsItFromTheStatus) {
  for (const bool opened : {false, true}) {
    World world = world_;
    world.observed.progress.reset();
    if (opened) world.observed.progress = Progress{};
    world.fail(0, 137, "Evicted");
    world.observed.workers.erase(world.observed.workers.begin() + 1);
    world.settle();
    EXPECT_EQ(world.status().phase, api::Phase::kSucceeded) << opened;
  }
}

TEST_F(OnceComplete, AJobThatIsSuspendedBeginsAnew) {
  world_.job().spec.run_policy.suspend = true;
  world_.settle();
  EXPECT_EQ(world_.status().phase, api::Phase::kSuspended);
  EXPECT_FALSE(world_.status().training_complete_time);
  world_.observed.progress.reset();
  world_.job().spec.run_policy.suspend = false;
  world_.start();
  EXPECT_EQ(world_.status().phase, api::Phase::kRunning);
}

}  // namespace
}  // namespace tilewright::reconcile
