// Tests of the number of workers and of how many an epoch waits for.
#include "controller/policy/elasticity.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::seconds;
using testing::JobSimulator;
using testing::make_job;

api::TrainJob elastic_job(std::int64_t replicas, std::int64_t min, std::int64_t max) {
  api::TrainJob job = make_job(1);
  job.spec.worker.replicas = replicas;
  job.spec.elastic_policy.min_replicas = min;
  job.spec.elastic_policy.max_replicas = max;
  return job;
}

TEST(Sizes, ClampReplicasToMinAndMax) {
  struct {
    int replicas, min, max, desired;
  } const cases[] = {{2, 1, 4, 2}, {9, 1, 4, 4}, {1, 2, 4, 2}, {0, 1, 4, 1}};
  for (const auto& c : cases) {
    EXPECT_EQ(sizes_of(elastic_job(c.replicas, c.min, c.max)).desired, c.desired) << c.replicas;
  }
}

// An invalid spec has sizes too: its workers that run already are counted.
TEST(Sizes, AreBoundedInAnInvalidSpec) {
  constexpr std::int64_t kMost = api::kMaxReplicas + 1;
  for (const std::int64_t huge : {std::int64_t{1} << 32, std::int64_t{23372036854775807},
                                  std::numeric_limits<std::int64_t>::max()}) {
    api::TrainJob job = elastic_job(huge, huge, huge);
    job.spec.nproc_per_node = api::ProcessCount{huge};
    const Sizes sizes = sizes_of(job);
    EXPECT_EQ(sizes.min, kMost) << huge;
    EXPECT_EQ(sizes.max, kMost) << huge;
    EXPECT_EQ(sizes.desired, kMost) << huge;
    EXPECT_EQ(sizes.processes_per_worker, api::kMaxProcessesPerNode) << huge;
  }
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(sizes_of(elastic_job(kLeast, kLeast, kLeast)).desired, 1);
}

TEST(Elasticity, ScalesUpAndDownWhileTraining) {
  JobSimulator sim(elastic_job(1, 1, 3));
  sim.graceful = true;
  sim.start();
  sim.job().spec.worker.replicas = 3;
  Plan plan = sim.step();
  ASSERT_EQ(plan.creations.size(), 2U);
  EXPECT_EQ(plan.creations[0], (WorkerCreation{"mrpc-worker-1", 1}));
  EXPECT_EQ(plan.creations[1], (WorkerCreation{"mrpc-worker-2", 2}));
  EXPECT_EQ(plan.membership->expected, 3);
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning) << "the existing workers keep training";
  sim.start();

  sim.job().spec.worker.replicas = 2;
  plan = sim.step();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].index, 2);
  EXPECT_EQ(plan.membership->expected, 2);
  sim.settle();
  sim.job().spec.worker.replicas = 3;  // before the pod is gone
  sim.settle();
  sim.finish_deletions();
  sim.start();
  EXPECT_EQ(sim.observed.workers.size(), 3U);
  EXPECT_EQ(sim.status().restarts.total(), 0) << "scaling is no failure";
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
}

TEST(Elasticity, KeepsTheFrozenSizesWhenReplicasChange) {
  JobSimulator sim(elastic_job(2, 1, 4));
  sim.start();
  EXPECT_EQ(sim.status().nominal_workers, 2);
  const auto shards = sim.status().virtual_shards;
  EXPECT_GE(shards, 4);
  sim.job().spec.worker.replicas = 4;
  sim.start();
  EXPECT_EQ(sim.status().nominal_workers, 2);
  EXPECT_EQ(sim.status().virtual_shards, shards);
}

TEST(Membership, CountsProcesses) {
  api::TrainJob job = elastic_job(2, 1, 3);
  job.spec.nproc_per_node = 4;
  JobSimulator sim(job);
  sim.start();
  const Plan plan = sim.plan();
  ASSERT_TRUE(plan.membership);
  EXPECT_EQ(plan.membership->min_world, 4);
  EXPECT_EQ(plan.membership->max_world, 12);
  EXPECT_EQ(plan.membership->expected, 8);
}

// A pod of the third worker may start more processes than the training has shards left.
TEST(Membership, OfAnExactJobIsAtMostItsVirtualShards) {
  for (const bool exact : {true, false}) {
    api::TrainJob job = elastic_job(2, 1, 4);
    job.spec.nproc_per_node.emplace().automatic = true;
    job.spec.trainer.flags["exact"] = exact ? "true" : "false";
    JobSimulator sim(job);
    sim.start();
    EXPECT_EQ(sim.status().virtual_shards, 16) << "the global batch";
    EXPECT_EQ(sim.plan().membership->max_world,
              exact ? 16 : 4 * static_cast<int>(api::kMaxAutomaticProcesses));
  }
}

TEST(Membership, WaitsOnlyForWorkersThatJoinSoon) {
  JobSimulator sim(elastic_job(3, 1, 3));
  sim.start();
  EXPECT_EQ(sim.plan().membership->timeout, seconds(0)) << "all have joined";
  sim.fail(2, 1);
  EXPECT_EQ(sim.plan().membership->expected, 3) << "it restarts at once";
  EXPECT_GT(sim.plan().membership->timeout, seconds(0));
  sim.settle();
  sim.block(2, StartProblemCause::kUnschedulable);
  EXPECT_EQ(sim.plan().membership->expected, 2);
  sim.block(1, StartProblemCause::kImageNotAvailable);
  EXPECT_EQ(sim.plan().membership->expected, 1);
}

TEST(Membership, NeverExpectsFewerThanMin) {
  JobSimulator sim(elastic_job(2, 2, 2));
  sim.start();
  sim.block(1, StartProblemCause::kUnschedulable);
  EXPECT_EQ(sim.plan().membership->expected, 2);
}

TEST(Membership, DoesNotExpectFinishedWorkers) {
  JobSimulator sim(elastic_job(3, 1, 3));
  sim.start();
  sim.succeed(2);
  EXPECT_EQ(sim.plan().membership->expected, 2);
}

TEST(Phase, IsRunningWhileFewerWorkersTrain) {
  JobSimulator sim(elastic_job(3, 1, 3));
  sim.start();
  sim.fail(2, 137, api::FailureCause::kInfrastructure, "Evicted");
  sim.settle();
  sim.block(2, StartProblemCause::kUnschedulable);
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kRestarting);
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 2;
  sim.observed.rendezvous->world = 2;
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "True")
      << "it explains why worker 2 is missing";
}

TEST(Gang, RequestsTheMinimumNumberOfWorkers) {
  JobSimulator sim(elastic_job(3, 2, 4));
  sim.observed.runtime.owned_resources = {OwnedResource::kPodGroup};
  sim.job().spec.run_policy.scheduling_policy.emplace();
  sim.job().spec.run_policy.scheduling_policy->queue = "night";
  const Plan plan = sim.plan();
  ASSERT_TRUE(plan.gang);
  EXPECT_EQ(plan.gang->min_member, 2);
  EXPECT_EQ(plan.gang->queue, "night");
  EXPECT_EQ(plan.ensure, std::vector<OwnedResource>{OwnedResource::kPodGroup});
  sim.job().spec.run_policy.scheduling_policy->min_available = 9;
  EXPECT_EQ(sim.plan().gang->min_member, 3) << "the gang is never larger than the number of pods";
}

TEST(Gang, IsAbsentWithoutSchedulingPolicyOrPodGroups) {
  JobSimulator sim;
  sim.observed.runtime.owned_resources = {OwnedResource::kPodGroup};
  EXPECT_FALSE(sim.plan().gang);
  EXPECT_TRUE(sim.plan().ensure.empty());
  sim.observed.runtime.owned_resources = {};
  sim.job().spec.run_policy.scheduling_policy.emplace();
  EXPECT_FALSE(sim.plan().gang);
}

}  // namespace
}  // namespace tilewright::policy
