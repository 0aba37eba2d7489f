// Suspension, deadline, time to live, cleanPodPolicy.
#include "controller/reconcile/cleanup.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using api::CleanPodPolicy;
using std::chrono::seconds;
using testing::World;

TEST(CleanPodPolicy, DecidesWhoStays) {
  struct {
    CleanPodPolicy policy;
    std::size_t left;
    bool companions;
  } const cases[] = {{CleanPodPolicy::kNone, 2, true},
                     {CleanPodPolicy::kRunning, 1, true},
                     {CleanPodPolicy::kAll, 0, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(api::to_string(c.policy));
    World world;
    world.job().spec.run_policy.clean_pod_policy = c.policy;
    world.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
    world.observed.runtime.companions = {Companion::kHeadlessService, Companion::kKeySecret};
    world.start();
    EXPECT_EQ(world.observed.companions.size(), 2U);
    world.fail(1, 1);  // worker 0 runs on
    world.settle();
    EXPECT_EQ(world.status().phase, api::Phase::kFailed);
    EXPECT_EQ(world.observed.workers.size(), c.left);
    EXPECT_EQ(!world.observed.companions.empty(), c.companions);
    EXPECT_EQ(world.status().replicas.active, c.policy == CleanPodPolicy::kNone ? 1 : 0);
  }
}

// A sidecar holds what the job has asked for.
TEST(CleanPodPolicy, TakesPodsWhoseWorkersAloneHaveEnded) {
  for (const CleanPodPolicy policy : {CleanPodPolicy::kNone, CleanPodPolicy::kRunning}) {
    World world;
    world.job().spec.run_policy.clean_pod_policy = policy;
    world.start();
    for (const int index : {0, 1}) {
      world.succeed(index);
      world.worker(index).pod_goes_on = true;
    }
    world.settle();
    EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
    EXPECT_EQ(world.status().replicas.succeeded, 2);
    EXPECT_EQ(world.observed.workers.size(), policy == CleanPodPolicy::kNone ? 2U : 0U);
  }
}

// A leader that died after the status was written may have removed them, or not.
TEST(CleanPodPolicy, RemovesWhatANewLeaderKnowsNothingOf) {
  World world;
  world.job().spec.run_policy.clean_pod_policy = CleanPodPolicy::kAll;
  world.observed.runtime.companions = {Companion::kHeadlessService, Companion::kKeySecret,
                                       Companion::kPodGroup};
  world.start();
  world.succeed(0);
  world.succeed(1);
  world.settle();
  EXPECT_TRUE(world.plan().remove.empty()) << "known to be gone";
  world.observed.removed_companions.clear();
  EXPECT_EQ(world.plan().remove, (std::vector{Companion::kKeySecret, Companion::kHeadlessService}))
      << "and no PodGroup of a job that has no schedulingPolicy";
}

TEST(TimeToLive, DeletesTheJobOnTime) {
  World world;
  world.job().spec.run_policy.ttl_seconds_after_finished = 100;
  world.start();
  world.succeed(0);
  world.succeed(1);
  const Plan ended = world.step();
  EXPECT_FALSE(ended.delete_job);
  EXPECT_EQ(ended.requeue_after, WallTime::duration(seconds(100)));
  world.settle();
  world.pass(seconds(99));
  EXPECT_FALSE(world.plan().delete_job);
  EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(1)));
  world.pass(seconds(1));
  EXPECT_TRUE(world.plan().delete_job);
}

TEST(TimeToLive, OfZeroDeletesAtOnce) {
  World world;
  world.job().spec.run_policy.ttl_seconds_after_finished = 0;
  world.start();
  world.succeed(0);
  world.succeed(1);
  EXPECT_TRUE(world.plan().delete_job);
}

TEST(Deadline, FiresWithNoOtherEventAround) {
  World world;
  world.job().spec.run_policy.active_deadline_seconds = 60;
  world.start();
  EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(60)));
  world.pass(seconds(60));
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(world.status(), api::condition::kFailed), "DeadlineExceeded");
  EXPECT_TRUE(world.observed.workers.empty());
}

TEST(Deadline, StartsAnewAfterASuspension) {
  World world;
  world.job().spec.run_policy.active_deadline_seconds = 60;
  world.start();
  world.pass(seconds(50));
  world.job().spec.run_policy.suspend = true;
  world.settle();
  world.pass(seconds(1000));
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kSuspended);
  world.job().spec.run_policy.suspend = false;
  world.start();
  EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(60)));
}

TEST(Suspend, TakesAllWorkersAwayAndGivesThemBack) {
  World world;
  world.graceful = true;
  world.start();
  world.job().spec.run_policy.suspend = true;
  world.job().metadata.generation = 2;
  const Plan plan = world.step();
  EXPECT_EQ(plan.deletions.size(), 2U);
  EXPECT_FALSE(plan.membership);
  EXPECT_EQ(world.status().phase, api::Phase::kSuspended);
  EXPECT_EQ(testing::condition(world.status(), api::condition::kSuspended), "True");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRunning), "False");
  EXPECT_EQ(world.status().replicas.active, 0);
  EXPECT_FALSE(world.status().start_time);

  // Resumed before the last one is gone.
  world.job().spec.run_policy.suspend = false;
  world.settle();
  EXPECT_TRUE(world.worker(0).terminating);
  EXPECT_EQ(world.status().restarts.total(), 0) << "our own deletions are nobody's failure";
  world.finish_deletions();
  world.start();
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(world.status(), api::condition::kSuspended), "False");
  EXPECT_EQ(world.status().restarts.total(), 0);
  EXPECT_TRUE(world.status().failures.empty());
}

TEST(Suspend, FromTheBeginningCreatesNothing) {
  World world;
  world.job().spec.run_policy.suspend = true;
  world.settle();
  EXPECT_TRUE(world.observed.workers.empty());
  EXPECT_EQ(world.status().phase, api::Phase::kSuspended);
  EXPECT_EQ(world.status().nominal_workers, 0) << "not frozen before the first start";
}

TEST(FinalPhase, StaysWhateverComes) {
  World world;
  world.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
  world.start();
  world.fail(1, 1);
  world.settle();
  ASSERT_EQ(world.status().phase, api::Phase::kFailed);
  const api::TrainJobStatus before = world.status();
  world.job().spec.run_policy.suspend = true;
  EXPECT_TRUE(world.plan().creations.empty());
  world.job().spec.run_policy.suspend = false;
  world.observed.workers.clear();
  world.pass(seconds(1000));
  world.settle();
  EXPECT_TRUE(world.observed.workers.empty());
  EXPECT_EQ(world.status().phase, api::Phase::kFailed);
  EXPECT_EQ(world.status().completion_time, before.completion_time);
}

TEST(DeletedJob, IsLeftToTheGarbageCollector) {
  World world;
  world.start();
  world.job().metadata.deletion_timestamp = world.now;
  world.observed.workers.clear();
  EXPECT_EQ(world.plan(), Plan{});
}

}  // namespace
}  // namespace tilewright::reconcile
