// Tests of what the policies do differently for a PyTorchJob, whose workers may run any program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/policy/messages.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using api::Phase;
using std::chrono::seconds;
using testing::JobSimulator;

JobSimulator foreign_job(int workers, bool master = false) {
  JobSimulator sim(testing::make_job(workers + (master ? 1 : 0)));
  sim.observed.traits.runs_tilewright = false;
  sim.observed.traits.has_master = master;
  return sim;
}

TEST(JobTraits, NameTheMasterAndTheWorkers) {
  JobSimulator sim = foreign_job(2, true);
  const Plan plan = sim.step();
  ASSERT_EQ(plan.creations.size(), 3U);
  EXPECT_EQ(plan.creations[0].name, "mrpc-master-0");
  EXPECT_EQ(plan.creations[1].name, "mrpc-worker-0");
  EXPECT_EQ(plan.creations[2].name, "mrpc-worker-1");
}

// Only Tilewright's image trains into the directory that the command names for it.
TEST(JobTraits, TheOutputDirectoryIsThatOfTheFirstTraining) {
  JobSimulator sim = foreign_job(2);
  sim.observed.traits.output_directory = "/disk/output_1";
  sim.start();
  EXPECT_EQ(sim.status().output_directory, "");
  sim.observed.job.status.rendezvous_epoch = 1;
  sim.settle();
  EXPECT_EQ(sim.status().output_directory, "/disk/output_1");
  sim.observed.traits.output_directory = "/disk/output_2";
  sim.settle();
  EXPECT_EQ(sim.status().output_directory, "/disk/output_1");
}

TEST(JobTraits, OneWorkersExitDoesNotEndTheJob) {
  JobSimulator sim = foreign_job(3);
  sim.start();
  sim.succeed(0);
  sim.settle();
  sim.pass(seconds(3600));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  sim.succeed(2);
  sim.succeed(1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

TEST(JobTraits, AWorkerThatFailsAfterAnotherHasSucceededIsRestarted) {
  JobSimulator sim = foreign_job(2);
  sim.start();
  sim.succeed(0);
  sim.fail(1, 1);
  sim.settle();
  sim.run_all();
  sim.settle();
  EXPECT_EQ(sim.status().restarts.program, 1);
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  sim.succeed(1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

// A drain, the removal of a node or a user deletes the pod.
TEST(JobTraits, AWorkerThatHasSucceededIsNotStartedAgain) {
  JobSimulator sim = foreign_job(3);
  sim.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
  sim.start();
  sim.succeed(1);
  sim.settle();
  sim.worker(1).terminating = true;
  sim.settle();
  sim.finish_deletions();
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  EXPECT_FALSE(sim.has_worker(1));
  EXPECT_TRUE(sim.status().failures.empty());
  EXPECT_EQ(sim.status().replicas.succeeded, 1);
  EXPECT_EQ(sim.status().succeeded_workers, std::vector<std::string>{"mrpc-worker-1"});
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(sim.status().replicas.succeeded, 1);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "");
  sim.succeed(0);
  sim.succeed(2);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

TEST(JobTraits, AFailureIsToldApartFromADeletedWorkerThatHasSucceeded) {
  JobSimulator sim = foreign_job(3);
  sim.start();
  sim.succeed(1);
  sim.settle();
  // Both pods are deleted by force while no leader watches.
  std::erase_if(sim.observed.workers, [](const Worker& worker) { return worker.index > 0; });
  sim.settle();
  EXPECT_EQ(sim.status().restarts.infrastructure, 1);
  ASSERT_EQ(sim.status().failures.size(), 1U);
  EXPECT_EQ(sim.status().failures[0].pod, "mrpc-worker-2");
  EXPECT_FALSE(sim.has_worker(1));
  EXPECT_TRUE(sim.has_worker(2));
}

TEST(JobTraits, TheSuccessOfTheMasterOutlivesItsPod) {
  JobSimulator sim = foreign_job(1, true);
  sim.start();
  sim.succeed(0);
  sim.settle();
  std::erase_if(sim.observed.workers, [](const Worker& worker) { return worker.index == 0; });
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
  EXPECT_TRUE(sim.status().failures.empty());
}

TEST(JobTraits, WorkersThatHaveSucceededStartAgainAfterASuspension) {
  JobSimulator sim = foreign_job(2);
  sim.start();
  sim.succeed(1);
  sim.settle();
  sim.job().spec.run_policy.suspend = true;
  sim.settle();
  EXPECT_TRUE(sim.status().succeeded_workers.empty());
  sim.job().spec.run_policy.suspend = false;
  sim.start();
  EXPECT_TRUE(sim.has_worker(1));
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
}

// Programs may exit with 0 on SIGTERM.
TEST(JobTraits, AnExitBecauseOfASuspensionIsNoSuccess) {
  for (const bool master : {false, true}) {
    SCOPED_TRACE(master);
    JobSimulator sim = foreign_job(1, master);
    sim.graceful = true;
    sim.start();
    const std::string first = sim.worker(0).uid;
    sim.job().spec.run_policy.suspend = true;
    sim.settle();
    ASSERT_TRUE(sim.worker(0).terminating);
    sim.succeed(0);
    sim.settle();
    sim.job().spec.run_policy.suspend = false;
    sim.settle();
    EXPECT_EQ(sim.status().phase, Phase::kPending);
    sim.finish_deletions();
    sim.start();
    EXPECT_EQ(sim.status().phase, Phase::kRunning);
    EXPECT_NE(sim.worker(0).uid, first);
    EXPECT_TRUE(sim.status().failures.empty());
  }
}

// As in a drain.
TEST(JobTraits, AnExitBecauseOfADeletionIsNoSuccess) {
  for (const bool observed_before : {false, true}) {
    SCOPED_TRACE(observed_before);
    JobSimulator sim = foreign_job(1, true);
    sim.start();
    for (const int index : {0, 1}) {
      sim.worker(index).terminating = true;
      if (observed_before) sim.settle();
      sim.succeed(index);
      sim.settle();
    }
    sim.finish_deletions();
    sim.start();
    EXPECT_EQ(sim.status().phase, Phase::kRunning);
    EXPECT_EQ(sim.status().restarts.infrastructure, 2);
    EXPECT_EQ(sim.status().failures.at(0).reason, "Deleted");
  }
}

// As when a kubelet runs out of memory or its node shuts down: it sends SIGTERM, deletes nothing.
TEST(JobTraits, AnExitBecauseOfAnEvictionIsNoSuccess) {
  for (const bool master : {false, true}) {
    SCOPED_TRACE(master);
    JobSimulator sim = foreign_job(1, master);
    sim.start();
    const std::string first = sim.worker(0).uid;
    sim.succeed(0);
    sim.worker(0).failure_cause = api::FailureCause::kInfrastructure;
    sim.worker(0).reason = "Evicted";
    sim.settle();
    sim.start();
    EXPECT_EQ(sim.status().phase, Phase::kRunning);
    EXPECT_NE(sim.worker(0).uid, first);
    EXPECT_THAT(sim.status().succeeded_workers, ::testing::IsEmpty());
    EXPECT_EQ(sim.status().restarts.infrastructure, 1);
    EXPECT_EQ(sim.status().failures.at(0).reason, "Evicted");
  }
}

TEST(JobTraits, AnElasticJobEndsWithoutTheWorkersThatNeverRan) {
  JobSimulator sim = foreign_job(3);
  sim.job().spec.elastic_policy.min_replicas = 2;
  sim.settle();
  sim.block(2, StartProblemCause::kUnschedulable);
  sim.run_all();
  sim.block(2, StartProblemCause::kUnschedulable);
  sim.settle();
  sim.succeed(0);
  sim.settle();
  EXPECT_NE(sim.status().phase, Phase::kSucceeded) << "fewer than minReplicas";
  sim.succeed(1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

TEST(JobTraits, AnElasticJobWaitsForAWorkerThatHasFailed) {
  JobSimulator sim = foreign_job(2);
  sim.job().spec.elastic_policy.min_replicas = 1;
  sim.start();
  sim.fail(1, 1);
  sim.settle();
  sim.block(1, StartProblemCause::kUnschedulable);
  sim.succeed(0);
  sim.settle();
  EXPECT_NE(sim.status().phase, Phase::kSucceeded);
}

TEST(JobTraits, TheMastersExitEndsTheJob) {
  JobSimulator sim = foreign_job(2, true);
  sim.start();
  sim.succeed(1);
  sim.succeed(2);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  sim.succeed(0);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

void expect_success_in_half_a_minute(JobSimulator& sim) {
  sim.pass(seconds(29));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  sim.pass(seconds(1));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded);
}

// With Kubeflow's operator the job ends at once.
TEST(JobTraits, TheWorkersHaveHalfAMinuteToExitAfterTheMaster) {
  JobSimulator sim = foreign_job(2, true);
  sim.start();
  sim.succeed(0);
  sim.settle();
  expect_success_in_half_a_minute(sim);
}

TEST(JobTraits, AnEarlierSuccessOfAWorkerDoesNotShortenThisTime) {
  JobSimulator sim = foreign_job(2, true);
  sim.start();
  sim.succeed(1);
  sim.settle();
  sim.pass(seconds(3600));
  sim.succeed(0);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning) << "worker 2 is about to exit";
  EXPECT_TRUE(sim.has_worker(2));
  expect_success_in_half_a_minute(sim);
}

TEST(JobTraits, TheMasterHasItsOwnRestartPolicy) {
  JobSimulator sim = foreign_job(1, true);
  sim.observed.traits.master_restart_policy = api::RestartPolicy::kNever;
  sim.start();
  sim.fail(1, 1);
  sim.settle();
  sim.run_all();
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning) << "the workers have OnFailure";
  sim.fail(0, 1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kFailed);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "RestartPolicyNever");
}

// Exit codes 20, 21 and 144 have meanings only if Tilewright's trainer returns them.
TEST(JobTraits, ForeignExitCodesAreFailuresOfTheProgram) {
  for (const int code : {20, 21, 144}) {
    JobSimulator sim = foreign_job(1);
    sim.start();
    sim.fail(0, code);
    sim.settle();
    EXPECT_EQ(sim.status().restarts.program, 1) << code;
    EXPECT_EQ(sim.status().failures.at(0).reason, "Error") << code;
    EXPECT_NE(testing::condition(sim.status(), api::condition::kBlocked), "True") << code;
  }
}

TEST(JobTraits, ExitCodesOfTilewrightKeepTheirMeanings) {
  JobSimulator sim = foreign_job(1);
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->latest_epoch = 1;
  sim.fail(0, 20);
  sim.settle();
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), kCheckpointMissingReason);
}

TEST(JobTraits, WorkersOfTilewrightEndTheJobTogether) {
  JobSimulator sim = foreign_job(2);
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->latest_epoch = 1;
  sim.succeed(1);
  sim.settle();
  sim.pass(seconds(31));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kSucceeded) << "as in a TrainJob";
}

TEST(JobTraits, ForeignWorkersAreNotExpectedAtTheRendezvous) {
  JobSimulator sim = foreign_job(2);
  sim.start();
  sim.pass(seconds(3600));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
  EXPECT_EQ(sim.status().find_condition(api::condition::kBlocked), nullptr);
}

TEST(JobTraits, ForeignWorkersOutliveANewMasterKey) {
  JobSimulator sim = foreign_job(1);
  sim.observed.key_id = "new";
  sim.settle();
  sim.worker(0).key_id = "old";
  sim.run_all();
  sim.settle();
  EXPECT_EQ(sim.status().restarts.total(), 0);
}

// They send no heartbeats, so a node that does not report says nothing about them.
TEST(JobTraits, ForeignWorkersOutliveTheReportsOfTheirNode) {
  JobSimulator sim = foreign_job(2);
  sim.start();
  sim.observed.rendezvous.emplace().members[1].silent = true;
  sim.worker(1).node_state = NodeState::kNotReady;
  EXPECT_TRUE(sim.plan().deletions.empty());
  sim.worker(1).terminating = true;  // the node controller evicts it
  sim.worker(1).deletion_deadline = sim.now;
  sim.pass(seconds(60));
  const Plan plan = sim.step();
  EXPECT_TRUE(plan.deletions.empty());
  EXPECT_TRUE(plan.creations.empty());
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "NodeNotReady");
}

TEST(JobTraits, MembershipIsBoundedForALargeJob) {
  JobSimulator sim = foreign_job(1);
  sim.job().spec.nproc_per_node = 200;
  sim.job().spec.worker.replicas = sim.job().spec.elastic_policy.min_replicas =
      sim.job().spec.elastic_policy.max_replicas = 40;
  const Plan plan = sim.step();
  ASSERT_TRUE(plan.membership);
  EXPECT_LE(plan.membership->min_world, rendezvous::kMaxWorld);
  EXPECT_LE(plan.membership->max_world, rendezvous::kMaxWorld);
  EXPECT_LE(plan.membership->expected, rendezvous::kMaxWorld);
}

TEST(JobTraits, ASuspendedOrFinishedJobNeedsNoAutoscaler) {
  for (const bool suspend : {true, false}) {
    JobSimulator sim = foreign_job(1);
    sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService,
                                            OwnedResource::kAutoscaler};
    sim.observed.traits.removed_when_inactive = {OwnedResource::kAutoscaler};
    sim.job().spec.run_policy.clean_pod_policy = api::CleanPodPolicy::kNone;
    sim.start();
    EXPECT_TRUE(sim.observed.owned_resources.contains(OwnedResource::kAutoscaler));
    if (suspend) {
      sim.job().spec.run_policy.suspend = true;
    } else {
      sim.succeed(0);
    }
    sim.settle();
    EXPECT_EQ(sim.observed.owned_resources, std::set{OwnedResource::kHeadlessService});
    if (!suspend) continue;
    sim.job().spec.run_policy.suspend = false;
    sim.settle();
    EXPECT_TRUE(sim.observed.owned_resources.contains(OwnedResource::kAutoscaler));
  }
}

// As Kubeflow's operator does.
TEST(JobTraits, TheEndDeletesTheServicesOfTheDeletedWorkers) {
  struct {
    api::CleanPodPolicy policy;
    std::set<int> deleted;  // workers, each with its Service
    bool all_services;      // as an owned resource
  } const cases[] = {{api::CleanPodPolicy::kNone, {}, false},
                     {api::CleanPodPolicy::kRunning, {0}, false},
                     {api::CleanPodPolicy::kAll, {0, 1, 2}, true}};
  for (const auto& c : cases) {
    SCOPED_TRACE(api::to_string(c.policy));
    JobSimulator sim = foreign_job(3);
    sim.observed.traits.service_per_worker = true;
    sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService};
    sim.job().spec.run_policy.clean_pod_policy = c.policy;
    sim.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
    sim.start();
    sim.succeed(2);
    sim.fail(1, 1);  // worker 0 keeps running
    const Plan plan = sim.step();
    ASSERT_TRUE(plan.finished);
    std::set<int> deleted;
    for (const WorkerDeletion& deletion : plan.deletions) {
      EXPECT_EQ(deletion.with_service, !c.all_services) << deletion.index;
      deleted.insert(deletion.index);
    }
    EXPECT_EQ(deleted, c.deleted);
    EXPECT_EQ(!plan.remove.empty(), c.all_services);
  }
}

TEST(JobTraits, ARestartKeepsTheService) {
  JobSimulator sim = foreign_job(2);
  sim.observed.traits.service_per_worker = true;
  sim.start();
  sim.fail(1, 1);
  const Plan plan = sim.plan();
  ASSERT_EQ(plan.deletions.size(), 1U);
  EXPECT_FALSE(plan.deletions[0].with_service);
}

TEST(JobTraits, ASuspensionDeletesAllServices) {
  JobSimulator sim = foreign_job(2);
  sim.observed.traits.service_per_worker = true;
  sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService,
                                          OwnedResource::kKeySecret};
  sim.start();
  sim.job().spec.run_policy.suspend = true;
  sim.settle();
  EXPECT_EQ(sim.observed.owned_resources, std::set{OwnedResource::kKeySecret});
  sim.job().spec.run_policy.suspend = false;
  sim.start();
  EXPECT_TRUE(sim.observed.owned_resources.contains(OwnedResource::kHeadlessService));
  EXPECT_EQ(sim.status().phase, Phase::kRunning);
}

// Kueue creates its jobs suspended.
TEST(JobTraits, AJobThatStartsSuspendedHasNothingToRemove) {
  JobSimulator sim = foreign_job(2);
  sim.observed.traits.service_per_worker = true;
  sim.observed.traits.removed_when_inactive = {OwnedResource::kAutoscaler};
  sim.observed.runtime.owned_resources = {OwnedResource::kHeadlessService,
                                          OwnedResource::kAutoscaler};
  sim.job().spec.run_policy.suspend = true;
  EXPECT_TRUE(sim.plan().remove.empty());
}

// Kubeflow's operator deletes every pod at a limit. Pods that have ended keep their logs here.
TEST(JobTraits, ALimitDeletesTheRunningWorkersWhateverCleanPodPolicySays) {
  for (const bool deadline : {true, false}) {
    JobSimulator sim = foreign_job(2);
    sim.observed.traits.service_per_worker = true;
    sim.observed.traits.limits_delete_running = true;
    auto& spec = sim.job().spec;
    spec.run_policy.clean_pod_policy = api::CleanPodPolicy::kNone;
    if (deadline) {
      spec.run_policy.active_deadline_seconds = 60;
    } else {
      spec.elastic_policy.max_restarts = 0;
    }
    sim.start();
    if (deadline) {
      sim.succeed(1);
      sim.pass(seconds(60));
    } else {
      sim.fail(1, 1);
    }
    const Plan plan = sim.step();
    EXPECT_EQ(sim.status().phase, Phase::kFailed);
    ASSERT_EQ(plan.deletions.size(), 1U);
    EXPECT_EQ(plan.deletions[0].index, 0);
    EXPECT_TRUE(plan.deletions[0].with_service);
    sim.settle();
    EXPECT_TRUE(sim.has_worker(1));
  }
}

TEST(JobTraits, AFailureThatIsNoLimitKeepsTheRunningWorkersUnderNone) {
  JobSimulator sim = foreign_job(2);
  sim.observed.traits.limits_delete_running = true;
  sim.job().spec.run_policy.clean_pod_policy = api::CleanPodPolicy::kNone;
  sim.job().spec.worker.restart_policy = api::RestartPolicy::kNever;
  sim.start();
  sim.fail(1, 1);
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kFailed);
  EXPECT_TRUE(sim.has_worker(0));
}

// Kubeflow's operator counts the restarts of the containers that exist, so a new pod begins at 0.
TEST(JobTraits, TheRestartBudgetDoesNotReset) {
  JobSimulator sim = foreign_job(1);
  sim.job().spec.elastic_policy.max_restarts = 2;
  sim.start();
  for (int i = 0; i < 3; ++i) {
    sim.pass(seconds(3600));
    sim.fail(0, 1);
    sim.settle();
    sim.pass(seconds(600));
    sim.settle();
    sim.run_all();
    sim.settle();
  }
  EXPECT_EQ(sim.status().phase, Phase::kFailed);
  EXPECT_EQ(sim.status().restarts.program, 2);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "BackoffLimitExceeded");
}

TEST(JobTraits, TheDeadlineNeedsNoEvent) {
  JobSimulator sim = foreign_job(1);
  sim.job().spec.run_policy.active_deadline_seconds = 60;
  sim.start();
  EXPECT_LE(sim.plan().requeue_after.value(), seconds(60));
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(sim.status().phase, Phase::kFailed);
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kFailed), "DeadlineExceeded");
}

TEST(JobTraits, AnOomKillIsRetriedOnce) {
  JobSimulator sim = foreign_job(1);
  sim.start();
  for (int i = 0; i < 2; ++i) {
    sim.fail(0, 137, api::FailureCause::kOutOfMemory, "OOMKilled");
    sim.settle();
    sim.pass(seconds(600));
    sim.settle();
    sim.run_all();
  }
  EXPECT_FALSE(sim.has_worker(0));
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), kOutOfMemoryReason);
}

TEST(JobTraits, MessagesNameTheFieldsOfTheManifest) {
  JobSimulator sim = foreign_job(1);
  sim.observed.traits.fields.memory = "the memory limit of the container pytorch";
  sim.start();
  for (int i = 0; i < 2; ++i) {
    sim.fail(0, 137, api::FailureCause::kOutOfMemory, "OOMKilled");
    sim.settle();
    sim.pass(seconds(600));
    sim.settle();
    sim.run_all();
  }
  EXPECT_NE(sim.status()
                .find_condition(api::condition::kBlocked)
                ->message.find("raise the memory limit of the container pytorch"),
            std::string::npos);
}

}  // namespace
}  // namespace tilewright::policy
