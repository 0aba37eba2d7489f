// Tests of an invalid job that the API server has accepted.
#include <gtest/gtest.h>

#include <limits>

#include "controller/policy/reconcile.h"
#include "controller/policy/status.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::seconds;
using testing::JobSimulator;

constexpr const char* kError = "spec.trainer.task is not known";

Plan plan_for_invalid(const JobSimulator& sim) {
  return reconcile_invalid(sim.observed, kError, sim.now);
}

TEST(ReconcileInvalid, KeepsRunningWorkersAndReportsTheReason) {
  JobSimulator sim;
  sim.start();
  sim.fail(1, 137);
  const Plan plan = plan_for_invalid(sim);
  EXPECT_TRUE(plan.deletions.empty());
  EXPECT_TRUE(plan.creations.empty());
  EXPECT_TRUE(plan.membership) << "the other workers keep training";
  EXPECT_FALSE(plan.finished);
  ASSERT_TRUE(plan.status);
  const api::Condition* blocked = plan.status->find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "InvalidSpec");
  EXPECT_EQ(blocked->message, std::string(kError) + "; fix the spec to resume");
}

TEST(ReconcileInvalid, CleansUpAFinishedJob) {
  JobSimulator sim;
  sim.job().spec.run_policy.ttl_seconds_after_finished = 100;
  sim.start();
  sim.succeed(0);
  sim.pass(seconds(30));
  ASSERT_TRUE(sim.step().status);
  ASSERT_EQ(sim.status().phase, api::Phase::kSucceeded);
  Worker stray;
  stray.name = "mrpc-worker-1";
  stray.index = 1;
  stray.uid = "uid-stray";
  sim.observed.workers.push_back(stray);
  const Plan plan = plan_for_invalid(sim);
  EXPECT_TRUE(plan.finished);
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].uid, "uid-stray");
  EXPECT_FALSE(plan.delete_job);
  EXPECT_EQ(plan.requeue_after, WallTime::duration(seconds(100)));
  sim.pass(seconds(100));
  EXPECT_TRUE(plan_for_invalid(sim).delete_job);
}

TEST(ReconcileInvalid, SuspendsAJobAndReportsTheReason) {
  JobSimulator sim;
  sim.start();
  sim.job().spec.run_policy.suspend = true;
  const Plan plan = plan_for_invalid(sim);
  EXPECT_EQ(plan.deletions.size(), 2U);
  EXPECT_TRUE(plan.membership) << "the workers write a checkpoint together";
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kSuspended);
  EXPECT_FALSE(plan.status->start_time);
  EXPECT_EQ(testing::reason(*plan.status, api::condition::kBlocked), "InvalidSpec");
}

TEST(ReconcileInvalid, EndsAJobAtItsDeadline) {
  JobSimulator sim;
  sim.job().spec.run_policy.active_deadline_seconds = 60;
  sim.start();
  sim.status().phase = api::Phase::kRunning;
  EXPECT_EQ(plan_for_invalid(sim).requeue_after, WallTime::duration(seconds(60)));
  sim.pass(seconds(60));
  const Plan plan = plan_for_invalid(sim);
  EXPECT_TRUE(plan.finished);
  EXPECT_EQ(plan.deletions.size(), 2U);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(*plan.status, api::condition::kFailed), "DeadlineExceeded");
}

TEST(ReconcileInvalid, PrefersSuccessOverTheDeadline) {
  JobSimulator sim;
  sim.job().spec.run_policy.active_deadline_seconds = 10;
  sim.start();
  sim.succeed(1);
  sim.pass(seconds(29));
  EXPECT_FALSE(plan_for_invalid(sim).finished) << "worker 0 is about to exit";
  EXPECT_EQ(plan_for_invalid(sim).requeue_after, WallTime::duration(seconds(1)));
  sim.pass(seconds(1));
  const Plan plan = plan_for_invalid(sim);
  EXPECT_TRUE(plan.finished);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kSucceeded);
}

// The limits themselves can be invalid.
TEST(ReconcileInvalid, IgnoresOutOfRangeLimits) {
  for (const std::int64_t limit :
       {std::int64_t{-1}, std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
    SCOPED_TRACE(limit);
    JobSimulator sim;
    sim.start();
    sim.pass(seconds(60));
    sim.job().spec.run_policy.active_deadline_seconds = limit;
    EXPECT_FALSE(plan_for_invalid(sim).finished);
    sim.succeed(0);
    sim.succeed(1);
    sim.job().spec.run_policy.active_deadline_seconds.reset();
    sim.settle();
    ASSERT_TRUE(is_final(sim.status().phase));
    sim.job().spec.run_policy.ttl_seconds_after_finished = limit;
    EXPECT_EQ(plan_for_invalid(sim).delete_job, limit == 0) << "0 deletes the job at once";
  }
}

TEST(ReconcileInvalid, LeavesADeletedJobToTheGarbageCollector) {
  JobSimulator sim;
  sim.start();
  sim.job().metadata.deletion_timestamp = sim.now;
  EXPECT_EQ(plan_for_invalid(sim), Plan{});
}

}  // namespace
}  // namespace tilewright::policy
