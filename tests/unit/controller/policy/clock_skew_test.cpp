// Tests with nodes and previous leaders whose clocks are minutes off.
#include "controller/policy/clock_skew.h"

#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::JobSimulator;
using testing::kStart;

TEST(ClockSkew, ClampsNodeTimesBetweenPodCreationAndNow) {
  for (const minutes skew : {minutes(-10), minutes(0), minutes(10)}) {
    JobSimulator sim;
    sim.start();
    sim.pass(seconds(60));
    Worker& worker = sim.worker(0);
    worker.created = kStart;
    worker.started = kStart + seconds(2) + skew;
    worker.finished = kStart + seconds(50) + skew;
    correct_clock_skew(sim.observed, sim.now);
    EXPECT_EQ(worker.created, kStart);
    EXPECT_GE(*worker.started, kStart);
    EXPECT_GE(*worker.finished, *worker.started);
    EXPECT_LE(*worker.finished, sim.now);
    if (skew == minutes(0)) {
      EXPECT_EQ(*worker.finished, kStart + seconds(50));
    }
  }
}

TEST(ClockSkew, LeavesUnsetTimesUnset) {
  JobSimulator sim;
  sim.start();
  sim.worker(0).created.reset();
  sim.worker(0).started.reset();
  sim.worker(0).finished = kStart - minutes(1);
  correct_clock_skew(sim.observed, kStart);
  EXPECT_FALSE(sim.worker(0).created || sim.worker(0).started);
  EXPECT_EQ(sim.worker(0).finished, kStart - minutes(1));
}

// The first restart of a worker is immediate, regardless of its node's clock.
TEST(ClockSkew, DoesNotDelayRestartsWhenTheNodeClockIsAhead) {
  JobSimulator sim;
  sim.start();
  sim.pass(seconds(60));
  sim.fail(1, 1);
  sim.worker(1).finished = sim.now + minutes(10);
  const auto reconcile_once = [&] {
    correct_clock_skew(sim.observed, sim.now);
    return sim.step();
  };
  reconcile_once();
  const Plan plan = reconcile_once();
  ASSERT_EQ(plan.creations.size(), 1U);
  EXPECT_EQ(plan.creations[0].index, 1);
}

TEST(ClockSkew, ClampsStatusTimesWrittenByALeaderWhoseClockIsAhead) {
  JobSimulator sim;
  sim.start();
  const WallTime later = sim.now + minutes(10);
  sim.status().start_time = later;
  sim.status().progress.emplace().updated = later;
  sim.status().failures.emplace_back().time = later;
  correct_clock_skew(sim.observed, sim.now);
  EXPECT_EQ(sim.status().start_time, sim.now);
  EXPECT_EQ(sim.status().progress->updated, sim.now);
  EXPECT_EQ(sim.status().failures[0].time, sim.now);
}

}  // namespace
}  // namespace tilewright::policy
