// Random sequences of all that can happen to a job, missed and doubled looks included.
//   - never two live workers of one index (World fails a creation over an existing one);
//   - counts never fall, and a failure is counted once;
//   - a final phase is final;
//   - the same look gives the same plan, and looking long enough comes to rest;
//   - left alone, the job ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "controller/reconcile/status.h"
#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::seconds;
using testing::World;

class Fate {
 public:
  explicit Fate(unsigned seed) : random_(seed) {}
  int up_to(int last) { return std::uniform_int_distribution<int>(0, last)(random_); }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[up_to(static_cast<int>(choices.size()) - 1)];
  }

 private:
  std::mt19937 random_;
};

api::TrainJob random_job(Fate& fate) {
  api::TrainJob job = testing::make_job(1 + fate.up_to(3));
  job.spec.elastic_policy.min_replicas = 1;
  job.spec.elastic_policy.max_replicas = 4;
  job.spec.elastic_policy.max_restarts = fate.up_to(8);
  job.spec.worker.restart_policy =
      fate.one_of({api::RestartPolicy::kAlways, api::RestartPolicy::kOnFailure,
                   api::RestartPolicy::kExitCode, api::RestartPolicy::kOnFailure});
  job.spec.run_policy.clean_pod_policy = fate.one_of(
      {api::CleanPodPolicy::kNone, api::CleanPodPolicy::kRunning, api::CleanPodPolicy::kAll});
  return job;
}

// Something happens to a worker, to the job or to time. Returns whether a worker was taken or died.
bool strike(World& world, Fate& fate) {
  auto& workers = world.observed.workers;
  if (!workers.empty()) {
    Worker& victim =
        workers[static_cast<std::size_t>(fate.up_to(static_cast<int>(workers.size()) - 1))];
    const bool alive = !has_ended(victim) && !victim.terminating;
    switch (fate.up_to(7)) {
      case 0:
        if (!alive) return false;
        world.fail(victim.index, fate.one_of({1, 2, 137, 139, 143}));
        return true;
      case 1:
        if (!alive) return false;
        world.fail(victim.index, 137, fate.one_of({"Evicted", "OOMKilled", "NodeShutdown"}));
        return true;
      case 2:
        if (!alive) return false;
        victim.terminating = true;
        return true;
      case 3:
        if (victim.phase == WorkerPhase::kRunning && !victim.terminating && victim.index != 0) {
          world.succeed(victim.index);
        }
        return false;
      default:
        break;
    }
  }
  switch (fate.up_to(5)) {
    case 0:
      world.job().spec.run_policy.suspend = !*world.job().spec.run_policy.suspend;
      ++world.job().metadata.generation;
      return false;
    case 1:
      world.job().spec.worker.replicas = 1 + fate.up_to(3);
      ++world.job().metadata.generation;
      return false;
    case 2:
      world.pass(seconds(fate.up_to(400)));
      return false;
    case 3:
      world.finish_deletions();
      return false;
    default:
      world.run_all();
      return false;
  }
}

void expect_no_count_falls(const api::TrainJobStatus& before, const api::TrainJobStatus& after) {
  EXPECT_GE(after.restarts.program, before.restarts.program);
  EXPECT_GE(after.restarts.infrastructure, before.restarts.infrastructure);
  EXPECT_GE(after.restarts.out_of_memory, before.restarts.out_of_memory);
  EXPECT_LE(after.failures.size(), api::kLedgerLength);
  if (is_final(before.phase)) {
    EXPECT_EQ(after.phase, before.phase);
  }
}

TEST(Reconcile, HoldsItsPromisesThroughAnything) {
  int ends = 0;
  for (unsigned seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Fate fate(seed);
    World world(random_job(fate));
    world.graceful = fate.up_to(1) == 1;
    std::int64_t deaths = 0;
    for (int happening = 0; happening < 60; ++happening) {
      deaths += strike(world, fate);
      const api::TrainJobStatus before = world.status();
      // Not every happening is looked at, and some are looked at twice.
      for (int look = fate.up_to(2); look > 0; --look) world.step();
      expect_no_count_falls(before, world.status());
      std::set<int> live;
      for (const Worker& worker : world.observed.workers) {
        if (has_ended(worker)) continue;
        EXPECT_TRUE(live.insert(worker.index).second) << worker.index;
      }
      EXPECT_LE(world.status().restarts.total(), deaths) << "more restarts than deaths";
      EXPECT_LE(world.status().restarts.program, *world.job().spec.elastic_policy.max_restarts);
    }
    // Now nothing strikes any more.
    world.job().spec.run_policy.suspend = false;
    ++world.job().metadata.generation;
    for (int round = 0; round < 8 && !is_final(world.status().phase); ++round) {
      world.finish_deletions();
      world.pass(seconds(400));
      world.start();
    }
    if (!is_final(world.status().phase)) {
      ASSERT_EQ(world.status().phase, api::Phase::kRunning);
      const std::size_t there = world.observed.workers.size();
      EXPECT_EQ(there, static_cast<std::size_t>(*world.job().spec.worker.replicas));
      for (Worker& worker : world.observed.workers) world.succeed(worker.index);
      world.settle();
      EXPECT_EQ(world.status().phase, api::Phase::kSucceeded);
      ++ends;
    }
  }
  EXPECT_GT(ends, 40) << "hardly any job came to its good end: the test tests nothing";
}

}  // namespace
}  // namespace tilewright::reconcile
