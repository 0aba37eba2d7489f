// Clocks of nodes and of former leaders that are minutes ahead or behind.
#include "controller/reconcile/own_time.h"

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::kStart;
using testing::World;

TEST(OwnTime, HoldsANodesTimesBetweenThePodsCreationAndNow) {
  for (const minutes skew : {minutes(-10), minutes(0), minutes(10)}) {
    World world;
    world.start();
    world.pass(seconds(60));
    Worker& worker = world.worker(0);
    worker.created = kStart;
    worker.started = kStart + seconds(2) + skew;
    worker.finished = kStart + seconds(50) + skew;
    take_own_time(world.observed, world.now);
    EXPECT_EQ(worker.created, kStart);
    EXPECT_GE(*worker.started, kStart);
    EXPECT_GE(*worker.finished, *worker.started);
    EXPECT_LE(*worker.finished, world.now);
    if (skew == minutes(0)) {
      EXPECT_EQ(*worker.finished, kStart + seconds(50));
    }
  }
}

TEST(OwnTime, LeavesWhatIsNotKnownUnknown) {
  World world;
  world.start();
  world.worker(0).created.reset();
  world.worker(0).started.reset();
  world.worker(0).finished = kStart - minutes(1);
  take_own_time(world.observed, kStart);
  EXPECT_FALSE(world.worker(0).created || world.worker(0).started);
  EXPECT_EQ(world.worker(0).finished, kStart - minutes(1));
}

// A worker is tried again at once the first time, whatever its node's clock says.
TEST(OwnTime, MakesNobodyWaitForAnotherMachinesClock) {
  World world;
  world.start();
  world.pass(seconds(60));
  world.fail(1, 1);
  world.worker(1).finished = world.now + minutes(10);
  const auto look = [&] {
    take_own_time(world.observed, world.now);
    return world.step();
  };
  look();
  const Plan plan = look();
  ASSERT_EQ(plan.creations.size(), 1U);
  EXPECT_EQ(plan.creations[0].index, 1);
}

TEST(OwnTime, TakesTheStatusOfAFormerLeaderAheadForTheLatest) {
  World world;
  world.start();
  const WallTime later = world.now + minutes(10);
  world.status().start_time = later;
  world.status().progress.emplace().updated = later;
  world.status().failures.emplace_back().time = later;
  take_own_time(world.observed, world.now);
  EXPECT_EQ(world.status().start_time, world.now);
  EXPECT_EQ(world.status().progress->updated, world.now);
  EXPECT_EQ(world.status().failures[0].time, world.now);
}

}  // namespace
}  // namespace tilewright::reconcile
