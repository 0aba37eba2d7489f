// When a job has succeeded.
#include "controller/reconcile/success.h"

#include <gtest/gtest.h>

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

TEST(Success, NeedsWorkerZero) {
  World world;
  world.start();
  world.succeed(1);
  world.fail(0, 137);
  world.settle();
  EXPECT_EQ(world.worker(0).uid, "uid-3");
  EXPECT_EQ(world.worker(1).uid, "uid-2") << "done, and kept";
  world.start();
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  world.succeed(0);
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
}

}  // namespace
}  // namespace tilewright::reconcile
