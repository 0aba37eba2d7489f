// How many workers there are, and how many an epoch waits for.
#include "controller/reconcile/elasticity.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;
using testing::make_job;
using testing::World;

api::TrainJob elastic_job(int replicas, int min, int max) {
  api::TrainJob job = make_job(replicas);
  job.spec.elastic_policy.min_replicas = min;
  job.spec.elastic_policy.max_replicas = max;
  return job;
}

TEST(Sizes, HoldReplicasBetweenMinAndMax) {
  struct {
    int replicas, min, max, desired;
  } const cases[] = {{2, 1, 4, 2}, {9, 1, 4, 4}, {1, 2, 4, 2}, {0, 1, 4, 1}};
  for (const auto& c : cases) {
    EXPECT_EQ(sizes_of(elastic_job(c.replicas, c.min, c.max)).desired, c.desired) << c.replicas;
  }
}

TEST(Elasticity, ScalesUpAndDownWhileTraining) {
  World world(elastic_job(1, 1, 3));
  world.graceful = true;
  world.start();
  world.job().spec.worker.replicas = 3;
  Plan plan = world.step();
  ASSERT_EQ(plan.creations.size(), 2U);
  EXPECT_EQ(plan.creations[0], (WorkerCreation{"mrpc-worker-1", 1}));
  EXPECT_EQ(plan.creations[1], (WorkerCreation{"mrpc-worker-2", 2}));
  EXPECT_EQ(plan.membership->expected, 3);
  EXPECT_EQ(world.status().phase, api::Phase::kRunning) << "those that are there go on";
  world.start();

  world.job().spec.worker.replicas = 2;
  plan = world.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].index, 2);
  EXPECT_EQ(plan.membership->expected, 2);
  world.settle();
  world.job().spec.worker.replicas = 3;  // before it is gone
  world.settle();
  world.finish_deletions();
  world.start();
  EXPECT_EQ(world.observed.workers.size(), 3U);
  EXPECT_EQ(world.status().restarts.total(), 0) << "scaling is nobody's failure";
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
}

TEST(Elasticity, KeepsTheFrozenSizesWhenReplicasChange) {
  World world(elastic_job(2, 1, 4));
  world.start();
  EXPECT_EQ(world.status().nominal_workers, 2);
  const auto shards = world.status().virtual_shards;
  EXPECT_GE(shards, 4);
  world.job().spec.worker.replicas = 4;
  world.start();
  EXPECT_EQ(world.status().nominal_workers, 2);
  EXPECT_EQ(world.status().virtual_shards, shards);
}

TEST(Membership, CountsProcesses) {
  api::TrainJob job = elastic_job(2, 1, 3);
  job.spec.nproc_per_node = 4;
  World world(job);
  world.start();
  const Plan plan = world.plan();
  ASSERT_TRUE(plan.membership);
  EXPECT_EQ(plan.membership->min_world, 4);
  EXPECT_EQ(plan.membership->max_world, 12);
  EXPECT_EQ(plan.membership->expected, 8);
}

TEST(Membership, WaitsForAWorkerThatComesSoonAndForNoOther) {
  World world(elastic_job(3, 1, 3));
  world.start();
  EXPECT_EQ(world.plan().membership->patience, seconds(0)) << "all are there";
  world.fail(2, 1);
  EXPECT_EQ(world.plan().membership->expected, 3) << "its restart comes at once";
  EXPECT_GT(world.plan().membership->patience, seconds(0));
  world.settle();
  world.worker(2).reason = "Unschedulable";
  EXPECT_EQ(world.plan().membership->expected, 2);
  world.worker(1).phase = WorkerPhase::kPending;
  world.worker(1).reason = "ImagePullBackOff";
  EXPECT_EQ(world.plan().membership->expected, 1);
}

TEST(Membership, NeverExpectsFewerThanMin) {
  World world(elastic_job(2, 2, 2));
  world.start();
  world.worker(1).phase = WorkerPhase::kPending;
  world.worker(1).reason = "Unschedulable";
  EXPECT_EQ(world.plan().membership->expected, 2);
}

TEST(Membership, DoesNotExpectWhoIsDone) {
  World world(elastic_job(3, 1, 3));
  world.start();
  world.succeed(2);
  EXPECT_EQ(world.plan().membership->expected, 2);
}

TEST(Phase, IsRunningWithFewerWhereTheyTrain) {
  World world(elastic_job(3, 1, 3));
  world.start();
  world.fail(2, 137, "Evicted");
  world.settle();
  world.worker(2).reason = "Unschedulable";
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kRestarting);
  world.observed.progress = Progress{};
  world.observed.progress->rendezvous_epoch = 2;
  world.observed.progress->world = 2;
  world.settle();
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "True")
      << "and the condition says why the third is missing";
}

TEST(Gang, AsksForWhatTheTrainingNeeds) {
  World world(elastic_job(3, 2, 4));
  world.observed.runtime.companions = {Companion::kPodGroup};
  world.job().spec.run_policy.scheduling_policy.emplace();
  world.job().spec.run_policy.scheduling_policy->queue = "night";
  const Plan plan = world.plan();
  ASSERT_TRUE(plan.gang);
  EXPECT_EQ(plan.gang->min_member, 2);
  EXPECT_EQ(plan.gang->queue, "night");
  EXPECT_EQ(plan.ensure, std::vector<Companion>{Companion::kPodGroup});
  world.job().spec.run_policy.scheduling_policy->min_available = 9;
  EXPECT_EQ(world.plan().gang->min_member, 3) << "more than there will be never comes";
}

TEST(Gang, IsLeftOutWhereNobodyAskedOrNobodyKnowsThem) {
  World world;
  world.observed.runtime.companions = {Companion::kPodGroup};
  EXPECT_FALSE(world.plan().gang);
  EXPECT_TRUE(world.plan().ensure.empty());
  world.observed.runtime.companions = {};
  world.job().spec.run_policy.scheduling_policy.emplace();
  EXPECT_FALSE(world.plan().gang);
}

}  // namespace
}  // namespace tilewright::reconcile
