// Simulates a job and its workers as plain values. Plans take effect at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "controller/api/defaults.h"
#include "controller/policy/reconcile.h"

namespace tilewright::policy::testing {

using std::chrono::seconds;

// 2026-01-01T00:00:00Z
inline constexpr WallTime kStart{seconds(1767225600)};

api::TrainJob make_job(int replicas = 2);

class JobSimulator {
 public:
  explicit JobSimulator(api::TrainJob job = make_job());

  Observed observed;
  WallTime now = kStart;

  api::TrainJob& job() { return observed.job; }
  api::TrainJobStatus& status() { return observed.job.status; }
  // Throws if the index has no worker.
  Worker& worker(int index);
  bool has_worker(int index) const;

  Plan plan() const { return reconcile(observed, now); }
  // Reconciles once and applies the plan.
  Plan step();
  // Steps until the plan changes nothing; fails the test after ten steps.
  void settle();
  // Settles with all workers created and running.
  void start();

  void run_all();
  void succeed(int index);
  void fail(int index, int exit_code, api::FailureCause cause = api::FailureCause::kProgram,
            const std::string& reason = "Error");
  // Makes the worker Pending with the given problem.
  void block(int index, StartProblemCause cause, const std::string& reason = "Stuck",
             const std::string& message = "");
  void pass(seconds time) { now += time; }
  // Removes the workers that are being deleted.
  void finish_deletions();

  bool graceful = false;  // deletions take effect only in finish_deletions()

 private:
  void apply(const Plan& plan);
  int next_uid_ = 1;
};

// The condition's status and reason; "" if the condition is absent.
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

inline JobSimulator::JobSimulator(api::TrainJob job) { observed.job = std::move(job); }

inline Worker& JobSimulator::worker(int index) {
  const auto found = std::ranges::find(observed.workers, index, &Worker::index);
  if (found == observed.workers.end()) throw std::runtime_error("no such worker");
  return *found;
}

inline bool JobSimulator::has_worker(int index) const {
  return std::ranges::find(observed.workers, index, &Worker::index) != observed.workers.end();
}

inline Plan JobSimulator::step() {
  Plan plan = reconcile(observed, now);
  EXPECT_EQ(plan, reconcile(observed, now)) << "reconcile must be deterministic";
  apply(plan);
  return plan;
}

inline void JobSimulator::apply(const Plan& plan) {
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
  for (const OwnedResource owned_resource : plan.ensure) {
    observed.owned_resources.insert(owned_resource);
    observed.removed_owned_resources.erase(owned_resource);
  }
  for (const OwnedResource owned_resource : plan.remove) {
    observed.owned_resources.erase(owned_resource);
    observed.removed_owned_resources.insert(owned_resource);
  }
  for (const WorkerCreation& creation : plan.creations) {
    ASSERT_FALSE(has_worker(creation.index)) << "a second worker of index " << creation.index;
    Worker worker;
    worker.name = creation.name;
    worker.index = creation.index;
    worker.uid = "uid-" + std::to_string(next_uid_++);
    worker.node = "node-a";
    worker.created = std::chrono::floor<seconds>(now);
    observed.workers.push_back(worker);
  }
}

inline void JobSimulator::settle() {
  for (int round = 0; round < 10; ++round) {
    const Plan plan = step();
    if (!plan.status && plan.deletions.empty() && plan.creations.empty() && plan.ensure.empty() &&
        plan.remove.empty()) {
      EXPECT_TRUE(plan.events.empty()) << "events without a status write";
      return;
    }
    if (graceful && !plan.status && plan.creations.empty()) return;
  }
  ADD_FAILURE() << "the plan still changes after ten steps";
}

inline void JobSimulator::finish_deletions() {
  std::erase_if(observed.workers, [](const Worker& worker) { return worker.terminating; });
}

inline void JobSimulator::run_all() {
  for (Worker& worker : observed.workers) {
    if (worker.phase != WorkerPhase::kPending) continue;
    worker.phase = WorkerPhase::kRunning;
    worker.ready = true;
    worker.reason.clear();
    worker.start_problem.reset();
    worker.started = std::chrono::floor<seconds>(now);
  }
}

inline void JobSimulator::start() {
  settle();
  run_all();
  settle();
}

inline void JobSimulator::succeed(int index) {
  Worker& ended = worker(index);
  ended.phase = WorkerPhase::kSucceeded;
  ended.ready = false;
  ended.exit_code = 0;
  ended.reason = "Completed";
  ended.finished = std::chrono::floor<seconds>(now);
}

inline void JobSimulator::fail(int index, int exit_code, api::FailureCause cause,
                               const std::string& reason) {
  Worker& ended = worker(index);
  ended.phase = WorkerPhase::kFailed;
  ended.ready = false;
  ended.exit_code = exit_code;
  ended.failure_cause = cause;
  ended.reason = reason;
  ended.finished = std::chrono::floor<seconds>(now);
}

inline void JobSimulator::block(int index, StartProblemCause cause, const std::string& reason,
                                const std::string& message) {
  Worker& blocked = worker(index);
  blocked.phase = WorkerPhase::kPending;
  blocked.ready = false;
  blocked.start_problem = StartProblem{cause, {}, {}, {}};
  blocked.reason = reason;
  blocked.message = message;
}

inline std::string condition(const api::TrainJobStatus& status, const char* type) {
  const api::Condition* found = status.find_condition(type);
  return found == nullptr ? "" : std::string(api::to_string(found->status));
}

inline std::string reason(const api::TrainJobStatus& status, const char* type) {
  const api::Condition* found = status.find_condition(type);
  return found == nullptr ? "" : found->reason;
}

}  // namespace tilewright::policy::testing
