// Tests of suspend, activeDeadlineSeconds, ttlSecondsAfterFinished and cleanPodPolicy.
#include "controller/policy/cleanup.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using api::CleanPodPolicy;
using std::chrono::seconds;
using testing::JobSimulator;

TEST(CleanPodPolicy, DecidesWhichPodsStay) {
  struct {
    CleanPodPolicy policy;
    std::size_t left;
    bool owned_resources;
  } const cases[] = {{CleanPodPolicy::kNone, 2, true},
                     {CleanPodPolicy::kRunning, 1, true},
                     {CleanPodPolicy::kAll, 0, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(api::to_string(c.policy));
    JobSimulator sim;
    sim.job().spec.run_policy.clean_pod_policy = c.policy;
    sim.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
    sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService,
                                            OwnedResource::kKeySecret};
    sim.start();
    EXPECT_EQ(sim.observed.owned_resources.size(), 2U);
    sim.fail(1, 1);  // worker 0 keeps running
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
    EXPECT_EQ(sim.observed.workers.size(), c.left);
    EXPECT_EQ(!sim.observed.owned_resources.empty(), c.owned_resources);
    EXPECT_EQ(sim.status().replicas.active, c.policy == CleanPodPolicy::kNone ? 1 : 0);
  }
}

// A sidecar would keep the resources that the job requested.
TEST(CleanPodPolicy, DeletesPodsThatOnlyASidecarKeepsRunning) {
  for (const CleanPodPolicy policy : {CleanPodPolicy::kNone, CleanPodPolicy::kRunning}) {
    JobSimulator sim;
    sim.job().spec.run_policy.clean_pod_policy = policy;
    sim.start();
    for (const int index : {0, 1}) {
      sim.succeed(index);
      sim.worker(index).pod_still_running = true;
    }
    sim.settle();
    EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
    EXPECT_EQ(sim.status().replicas.succeeded, 2);
    EXPECT_EQ(sim.observed.workers.size(), policy == CleanPodPolicy::kNone ? 2U : 0U);
  }
}

// A leader that died after the status write may or may not have removed them.
TEST(CleanPodPolicy, RemovesOwnedResourcesThatANewLeaderHasNotSeen) {
  JobSimulator sim;
  sim.job().spec.run_policy.clean_pod_policy = CleanPodPolicy::kAll;
  sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService,
                                          OwnedResource::kKeySecret, OwnedResource::kPodGroup};
  sim.start();
  sim.succeed(0);
  sim.succeed(1);
  sim.settle();
  EXPECT_TRUE(sim.plan().remove.empty()) << "known not to exist";
  sim.observed.removed_owned_resources.clear();
  EXPECT_EQ(sim.plan().remove,
            (std::vector{OwnedResource::kKeySecret, OwnedResource::kHeadlessService}))
      << "a job without schedulingPolicy has no PodGroup";
}

TEST(TimeToLive, DeletesTheJobOnTime) {
  JobSimulator sim;
  sim.job().spec.run_policy.ttl_seconds_after_finished = 100;
  sim.start();
  sim.succeed(0);
  sim.succeed(1);
  const Plan ended = sim.step();
  EXPECT_FALSE(ended.delete_job);
  EXPECT_EQ(ended.requeue_after, WallTime::duration(seconds(100)));
  sim.settle();
  sim.pass(seconds(99));
  EXPECT_FALSE(sim.plan().delete_job);
  EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(1)));
  sim.pass(seconds(1));
  EXPECT_TRUE(sim.plan().delete_job);
}

TEST(TimeToLive, OfZeroDeletesAtOnce) {
  JobSimulator sim;
  sim.job().spec.run_policy.ttl_seconds_after_finished = 0;
  sim.start();
  sim.succeed(0);
  sim.succeed(1);
  EXPECT_TRUE(sim.plan().delete_job);
}

TEST(Deadline, ExpiresWithoutAnyEvent) {
  JobSimulator sim;
  sim.job().spec.run_policy.active_deadline_seconds = 60;
  sim.start();
  EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(60)));
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "DeadlineExceeded");
  EXPECT_TRUE(sim.observed.workers.empty());
}

TEST(Deadline, RestartsAfterASuspension) {
  JobSimulator sim;
  sim.job().spec.run_policy.active_deadline_seconds = 60;
  sim.start();
  sim.pass(seconds(50));
  sim.job().spec.run_policy.suspend = true;
  sim.settle();
  sim.pass(seconds(1000));
  sim.settle();
  EXPECT_EQ(sim.status().phase, api::Phase::kSuspended);
  sim.job().spec.run_policy.suspend = false;
  sim.start();
  EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(60)));
}

TEST(Suspend, DeletesAllWorkersAndCreatesThemOnResume) {
  JobSimulator sim;
  sim.graceful = true;
  sim.start();
  sim.job().spec.run_policy.suspend = true;
  sim.job().metadata.generation = 2;
  const Plan plan = sim.step();
  EXPECT_EQ(plan.deletions.size(), 2U);
  EXPECT_TRUE(plan.membership) << "the workers agree on the step of the checkpoint";
  EXPECT_EQ(sim.status().phase, api::Phase::kSuspended);
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kSuspended), "True");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRunning), "False");
  EXPECT_EQ(sim.status().replicas.active, 0);
  EXPECT_FALSE(sim.status().start_time);

  // Resumed before the last worker is gone.
  sim.job().spec.run_policy.suspend = false;
  sim.settle();
  EXPECT_TRUE(sim.worker(0).terminating);
  EXPECT_EQ(sim.status().restarts.total(), 0) << "deletions by a plan are no failures";
  sim.finish_deletions();
  sim.start();
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kSuspended), "False");
  EXPECT_EQ(sim.status().restarts.total(), 0);
  EXPECT_TRUE(sim.status().failures.empty());
}

TEST(Suspend, RefusesMembersWhenTheLastWorkerHasEnded) {
  JobSimulator sim;
  sim.graceful = true;
  sim.start();
  sim.job().spec.run_policy.suspend = true;
  sim.step();
  sim.fail(0, 143);
  EXPECT_TRUE(sim.plan().membership);
  sim.finish_deletions();
  EXPECT_FALSE(sim.plan().membership);
}

TEST(Suspend, CreatesNoWorkersForAJobThatStartsSuspended) {
  JobSimulator sim;
  sim.job().spec.run_policy.suspend = true;
  sim.settle();
  EXPECT_TRUE(sim.observed.workers.empty());
  EXPECT_EQ(sim.status().phase, api::Phase::kSuspended);
  EXPECT_EQ(sim.status().nominal_workers, 0) << "not frozen before the first start";
}

TEST(FinalPhase, NeverChanges) {
  JobSimulator sim;
  sim.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
  sim.start();
  sim.fail(1, 1);
  sim.settle();
  ASSERT_EQ(sim.status().phase, api::Phase::kFailed);
  const api::TrainJobStatus before = sim.status();
  sim.job().spec.run_policy.suspend = true;
  EXPECT_TRUE(sim.plan().creations.empty());
  sim.job().spec.run_policy.suspend = false;
  sim.observed.workers.clear();
  sim.pass(seconds(1000));
  sim.settle();
  EXPECT_TRUE(sim.observed.workers.empty());
  EXPECT_EQ(sim.status().phase, api::Phase::kFailed);
  EXPECT_EQ(sim.status().completion_time, before.completion_time);
}

TEST(DeletedJob, IsLeftToTheGarbageCollector) {
  JobSimulator sim;
  sim.start();
  sim.job().metadata.deletion_timestamp = sim.now;
  sim.observed.workers.clear();
  EXPECT_EQ(sim.plan(), Plan{});
}

}  // namespace
}  // namespace tilewright::policy
