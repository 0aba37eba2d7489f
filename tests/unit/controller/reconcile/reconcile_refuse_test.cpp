// A job that is not valid, though the API server took it: what is done for it all the same.
#include <gtest/gtest.h>

#include <limits>

#include "controller/reconcile/reconcile.h"
#include "controller/reconcile/status.h"
#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;
using testing::World;

constexpr const char* kWhy = "spec.trainer.task is not known";

Plan refused(const World& world) { return refuse(world.observed, kWhy, world.now); }

TEST(Refuse, LeavesWhatRunsAloneAndSaysWhy) {
  World world;
  world.start();
  world.fail(1, 137);
  const Plan plan = refused(world);
  EXPECT_TRUE(plan.deletions.empty());
  EXPECT_TRUE(plan.creations.empty());
  EXPECT_TRUE(plan.membership) << "the others train on";
  EXPECT_FALSE(plan.finished);
  ASSERT_TRUE(plan.status);
  const api::Condition* blocked = plan.status->find_condition(api::condition::kBlocked);
  ASSERT_NE(blocked, nullptr);
  EXPECT_EQ(blocked->reason, "InvalidSpec");
  EXPECT_EQ(blocked->message, std::string(kWhy) + "; it goes on when that is put right");
}

TEST(Refuse, CleansAJobUpThatHasEnded) {
  World world;
  world.job().spec.run_policy.ttl_seconds_after_finished = 100;
  world.start();
  world.succeed(0);
  world.pass(seconds(30));
  ASSERT_TRUE(world.step().status);
  ASSERT_EQ(world.status().phase, api::Phase::kSucceeded);
  Worker stray;
  stray.name = "mrpc-worker-1";
  stray.index = 1;
  stray.uid = "uid-stray";
  world.observed.workers.push_back(stray);
  const Plan plan = refused(world);
  EXPECT_TRUE(plan.finished);
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_EQ(plan.deletions[0].uid, "uid-stray");
  EXPECT_FALSE(plan.delete_job);
  EXPECT_EQ(plan.requeue_after, WallTime::duration(seconds(100)));
  world.pass(seconds(100));
  EXPECT_TRUE(refused(world).delete_job);
}

TEST(Refuse, SuspendsAJobAndStillSaysWhatIsWrong) {
  World world;
  world.start();
  world.job().spec.run_policy.suspend = true;
  const Plan plan = refused(world);
  EXPECT_EQ(plan.deletions.size(), 2U);
  EXPECT_FALSE(plan.membership);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kSuspended);
  EXPECT_FALSE(plan.status->start_time);
  EXPECT_EQ(testing::reason(*plan.status, api::condition::kBlocked), "InvalidSpec");
}

TEST(Refuse, EndsAJobAtItsDeadline) {
  World world;
  world.job().spec.run_policy.active_deadline_seconds = 60;
  world.start();
  world.status().phase = api::Phase::kRunning;
  EXPECT_EQ(refused(world).requeue_after, WallTime::duration(seconds(60)));
  world.pass(seconds(60));
  const Plan plan = refused(world);
  EXPECT_TRUE(plan.finished);
  EXPECT_EQ(plan.deletions.size(), 2U);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kFailed);
  EXPECT_EQ(testing::reason(*plan.status, api::condition::kFailed), "DeadlineExceeded");
}

TEST(Refuse, PrefersTheSuccessOfAJobToItsDeadline) {
  World world;
  world.job().spec.run_policy.active_deadline_seconds = 10;
  world.start();
  world.succeed(1);
  world.pass(seconds(29));
  EXPECT_FALSE(refused(world).finished) << "worker 0 is at its end";
  EXPECT_EQ(refused(world).requeue_after, WallTime::duration(seconds(1)));
  world.pass(seconds(1));
  const Plan plan = refused(world);
  EXPECT_TRUE(plan.finished);
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, api::Phase::kSucceeded);
}

// The limits themselves can be what is not valid.
TEST(Refuse, TrustsNoLimitThatIsOutOfRange) {
  for (const std::int64_t limit :
       {std::int64_t{-1}, std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
    SCOPED_TRACE(limit);
    World world;
    world.start();
    world.pass(seconds(60));
    world.job().spec.run_policy.active_deadline_seconds = limit;
    EXPECT_FALSE(refused(world).finished);
    world.succeed(0);
    world.succeed(1);
    world.job().spec.run_policy.active_deadline_seconds.reset();
    world.settle();
    ASSERT_TRUE(is_final(world.status().phase));
    world.job().spec.run_policy.ttl_seconds_after_finished = limit;
    EXPECT_EQ(refused(world).delete_job, limit == 0) << "at once is a time to live";
  }
}

TEST(Refuse, LeavesAJobToTheGarbageCollectorThatIsDeleted) {
  World world;
  world.start();
  world.job().metadata.deletion_timestamp = world.now;
  EXPECT_EQ(refused(world), Plan{});
}

}  // namespace
}  // namespace tilewright::reconcile
