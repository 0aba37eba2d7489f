// Property test: random sequences of events, with missed and repeated reconciles. Invariants:
//   - never two live workers of one index (JobSimulator fails a creation over an existing one);
//   - counts never decrease, and a failure is counted once;
//   - a final phase is final;
//   - the same state gives the same plan, and repeated reconciles reach a fixed point;
//   - without further events the job succeeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "controller/policy/status.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::seconds;
using testing::JobSimulator;

class RandomChoices {
 public:
  explicit RandomChoices(unsigned seed) : random_(seed) {}
  int up_to(int last) { return std::uniform_int_distribution<int>(0, last)(random_); }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[up_to(static_cast<int>(choices.size()) - 1)];
  }

 private:
  std::mt19937 random_;
};

api::TrainJob random_job(RandomChoices& random) {
  api::TrainJob job = testing::make_job(1 + random.up_to(3));
  job.spec.elastic_policy.min_replicas = 1;
  job.spec.elastic_policy.max_replicas = 4;
  job.spec.elastic_policy.max_restarts = random.up_to(8);
  job.spec.worker.restart_policy =
      random.one_of({api::RestartPolicy::kAlways, api::RestartPolicy::kOnFailure,
                     api::RestartPolicy::kExitCode, api::RestartPolicy::kOnFailure});
  job.spec.run_policy.clean_pod_policy = random.one_of(
      {api::CleanPodPolicy::kNone, api::CleanPodPolicy::kRunning, api::CleanPodPolicy::kAll});
  return job;
}

// Changes a worker, the job or the time. Returns whether a worker was deleted or failed.
bool inject_event(JobSimulator& sim, RandomChoices& random) {
  auto& workers = sim.observed.workers;
  if (!workers.empty()) {
    Worker& target =
        workers[static_cast<std::size_t>(random.up_to(static_cast<int>(workers.size()) - 1))];
    const bool alive = !has_ended(target) && !target.terminating;
    switch (random.up_to(7)) {
      case 0:
        if (!alive) return false;
        sim.fail(target.index, random.one_of({1, 3, 137, 139, 143}));
        return true;
      case 1:
        if (!alive) return false;
        sim.fail(target.index, 137,
                 random.one_of({api::FailureCause::kInfrastructure, api::FailureCause::kOutOfMemory,
                                api::FailureCause::kInfrastructure}));
        return true;
      case 2:
        if (!alive) return false;
        target.terminating = true;
        return true;
      case 3:
        if (target.phase == WorkerPhase::kRunning && !target.terminating && target.index != 0) {
          sim.succeed(target.index);
        }
        return false;
      default:
        break;
    }
  }
  switch (random.up_to(5)) {
    case 0:
      sim.job().spec.run_policy.suspend = !*sim.job().spec.run_policy.suspend;
      ++sim.job().metadata.generation;
      return false;
    case 1:
      sim.job().spec.worker.replicas = 1 + random.up_to(3);
      ++sim.job().metadata.generation;
      return false;
    case 2:
      sim.pass(seconds(random.up_to(400)));
      return false;
    case 3:
      sim.finish_deletions();
      return false;
    default:
      sim.run_all();
      return false;
  }
}

void expect_no_count_decreases(const api::TrainJobStatus& before,
                               const api::TrainJobStatus& after) {
  EXPECT_GE(after.restarts.program, before.restarts.program);
  EXPECT_GE(after.restarts.infrastructure, before.restarts.infrastructure);
  EXPECT_GE(after.restarts.out_of_memory, before.restarts.out_of_memory);
  EXPECT_LE(after.failures.size(), api::kFailureHistoryLength);
  if (is_final(before.phase)) {
    EXPECT_EQ(after.phase, before.phase);
  }
}

TEST(Reconcile, KeepsItsInvariantsUnderRandomEvents) {
  int ends = 0;
  for (unsigned seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomChoices random(seed);
    JobSimulator sim(random_job(random));
    sim.graceful = random.up_to(1) == 1;
    std::int64_t deaths = 0;
    for (int iteration = 0; iteration < 60; ++iteration) {
      deaths += inject_event(sim, random);
      const api::TrainJobStatus before = sim.status();
      // Zero, one or two reconciles follow each event.
      for (int round = random.up_to(2); round > 0; --round) sim.step();
      expect_no_count_decreases(before, sim.status());
      std::set<int> live;
      for (const Worker& worker : sim.observed.workers) {
        if (has_ended(worker)) continue;
        EXPECT_TRUE(live.insert(worker.index).second) << worker.index;
      }
      EXPECT_LE(sim.status().restarts.total(), deaths) << "restarts exceed failures and deletions";
      EXPECT_LE(sim.status().restarts.program, *sim.job().spec.elastic_policy.max_restarts);
    }
    // No more events.
    sim.job().spec.run_policy.suspend = false;
    ++sim.job().metadata.generation;
    for (int round = 0; round < 8 && !is_final(sim.status().phase); ++round) {
      sim.finish_deletions();
      sim.pass(seconds(400));
      sim.start();
    }
    if (!is_final(sim.status().phase)) {
      ASSERT_EQ(sim.status().phase, api::Phase::kRunning);
      const std::size_t workers = sim.observed.workers.size();
      EXPECT_EQ(workers, static_cast<std::size_t>(*sim.job().spec.worker.replicas));
      for (Worker& worker : sim.observed.workers) sim.succeed(worker.index);
      sim.settle();
      EXPECT_EQ(sim.status().phase, api::Phase::kSucceeded);
      ++ends;
    }
  }
  EXPECT_GT(ends, 40) << "too few jobs succeeded for the test to be meaningful";
}

}  // namespace
}  // namespace tilewright::policy
