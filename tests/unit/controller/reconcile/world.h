// A job and its workers as plain values, and the plainest runtime: what a plan says happens at
// once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "controller/api/defaults.h"
#include "controller/reconcile/reconcile.h"

namespace tilewright::reconcile::testing {

using std::chrono::seconds;

// 2026-01-01T00:00:00Z
inline constexpr WallTime kStart{seconds(1767225600)};

api::TrainJob make_job(int replicas = 2);

class World {
 public:
  explicit World(api::TrainJob job = make_job());

  Observed observed;
  WallTime now = kStart;

  api::TrainJob& job() { return observed.job; }
  api::TrainJobStatus& status() { return observed.job.status; }
  // The worker of that index; there must be one.
  Worker& worker(int index);
  bool has_worker(int index) const;

  Plan plan() const { return reconcile(observed, now); }
  // Reconciles and carries out, once.
  Plan step();
  // Until the plan changes nothing any more; fails the test if that does not happen.
  void settle();
  // Settles with all workers created and running: a job in full swing.
  void start();

  void run_all();
  void succeed(int index);
  void fail(int index, int exit_code, const std::string& reason = "Error");
  void pass(seconds time) { now += time; }
  // What was deleted is really gone (a worker being deleted stays for a while).
  void finish_deletions();

  bool graceful = false;  // deletions only begin; finish_deletions() ends them

 private:
  void carry_out(const Plan& plan);
  int next_uid_ = 1;
};

// The condition's status as text, "" if there is none of that type.
std::string condition(const api::TrainJobStatus& status, const char* type);
std::string reason(const api::TrainJobStatus& status, const char* type);

inline api::TrainJob make_job(int replicas) {
  api::TrainJob job;
  job.metadata.name = "mrpc";
  job.metadata.uid = "job-1";
  job.metadata.generation = 1;
  job.spec.trainer.task = "mrpc";
  job.spec.worker.replicas = replicas;
  api::apply_defaults(job);
  return job;
}

inline World::World(api::TrainJob job) { observed.job = std::move(job); }

inline Worker& World::worker(int index) {
  const auto found = std::ranges::find(observed.workers, index, &Worker::index);
  if (found == observed.workers.end()) throw std::runtime_error("no such worker");
  return *found;
}

inline bool World::has_worker(int index) const {
  return std::ranges::find(observed.workers, index, &Worker::index) != observed.workers.end();
}

inline Plan World::step() {
  Plan plan = reconcile(observed, now);
  EXPECT_EQ(plan, reconcile(observed, now)) << "two looks at the same must give the same plan";
  carry_out(plan);
  return plan;
}

inline void World::carry_out(const Plan& plan) {
  if (plan.status) observed.job.status = *plan.status;
  for (const WorkerDeletion& deletion : plan.deletions) {
    if (graceful && !deletion.force) {
      for (Worker& worker : observed.workers) {
        if (worker.uid == deletion.uid) worker.terminating = true;
      }
    } else {
      std::erase_if(observed.workers, [&](const Worker& w) { return w.uid == deletion.uid; });
    }
  }
  for (const Companion companion : plan.ensure) {
    observed.companions.insert(companion);
    observed.removed_companions.erase(companion);
  }
  for (const Companion companion : plan.remove) {
    observed.companions.erase(companion);
    observed.removed_companions.insert(companion);
  }
  for (const WorkerCreation& creation : plan.creations) {
    ASSERT_FALSE(has_worker(creation.index)) << "a second life of index " << creation.index;
    Worker worker;
    worker.name = creation.name;
    worker.index = creation.index;
    worker.uid = "uid-" + std::to_string(next_uid_++);
    worker.node = "node-a";
    worker.created = std::chrono::floor<seconds>(now);
    observed.workers.push_back(worker);
  }
}

inline void World::settle() {
  for (int round = 0; round < 10; ++round) {
    const Plan plan = step();
    if (!plan.status && plan.deletions.empty() && plan.creations.empty() && plan.ensure.empty() &&
        plan.remove.empty()) {
      EXPECT_TRUE(plan.events.empty()) << "events without a status to write";
      return;
    }
    if (graceful && !plan.status && plan.creations.empty()) return;
  }
  ADD_FAILURE() << "ten rounds and no rest";
}

inline void World::finish_deletions() {
  std::erase_if(observed.workers, [](const Worker& worker) { return worker.terminating; });
}

inline void World::run_all() {
  for (Worker& worker : observed.workers) {
    if (worker.phase != WorkerPhase::kPending) continue;
    worker.phase = WorkerPhase::kRunning;
    worker.ready = true;
    worker.reason.clear();
    worker.started = std::chrono::floor<seconds>(now);
  }
}

inline void World::start() {
  settle();
  run_all();
  settle();
}

inline void World::succeed(int index) {
  Worker& ended = worker(index);
  ended.phase = WorkerPhase::kSucceeded;
  ended.ready = false;
  ended.exit_code = 0;
  ended.reason = "Completed";
  ended.finished = std::chrono::floor<seconds>(now);
}

inline void World::fail(int index, int exit_code, const std::string& why) {
  Worker& ended = worker(index);
  ended.phase = WorkerPhase::kFailed;
  ended.ready = false;
  ended.exit_code = exit_code;
  ended.reason = why;
  ended.finished = std::chrono::floor<seconds>(now);
}

inline std::string condition(const api::TrainJobStatus& status, const char* type) {
  const api::Condition* found = status.find_condition(type);
  return found == nullptr ? "" : std::string(api::to_string(found->status));
}

inline std::string reason(const api::TrainJobStatus& status, const char* type) {
  const api::Condition* found = status.find_condition(type);
  return found == nullptr ? "" : found->reason;
}

}  // namespace tilewright::reconcile::testing
