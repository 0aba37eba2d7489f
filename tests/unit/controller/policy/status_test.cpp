// Tests of the status, when it is written, and the events that follow.
#include "controller/policy/status.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::JobSimulator;

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> result;
  for (const Event& event : plan.events) result.push_back(event.reason);
  return result;
}

TEST(Events, ReportValidationWarningsOnce) {
  JobSimulator sim;
  sim.observed.warnings = {"spec.worker.resources.cpu: found 500m"};
  const Plan first = sim.step();
  EXPECT_EQ(reasons(first), (std::vector<std::string>{"Created", "ValidationWarning"}));
  EXPECT_EQ(first.events[1].message, "spec.worker.resources.cpu: found 500m");
  EXPECT_TRUE(first.events[1].warning);
  EXPECT_TRUE(reasons(sim.step()).empty());
}

TEST(Status, FollowsAJobFromCreationToSuccess) {
  JobSimulator sim;
  const Plan first = sim.step();
  EXPECT_EQ(reasons(first), std::vector<std::string>{"Created"});
  EXPECT_EQ(sim.status().phase, api::Phase::kPending);
  EXPECT_EQ(sim.status().start_time, testing::kStart);
  EXPECT_EQ(sim.status().observed_generation, 1);
  EXPECT_EQ(sim.status().selector, "tilewright.dev/job-name=mrpc,tilewright.dev/role=worker");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kCreated), "True");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRunning), "False");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kFailed), "");

  sim.run_all();
  const Plan running = sim.step();
  EXPECT_EQ(reasons(running), std::vector<std::string>{"Running"});
  EXPECT_EQ(sim.status().phase, api::Phase::kRunning);
  EXPECT_EQ(sim.status().replicas, (api::ReplicaCounts{2, 2, 2, 0, 0}));

  sim.pass(seconds(5));
  sim.fail(1, 3);
  const Plan failing = sim.step();
  EXPECT_EQ(reasons(failing), std::vector<std::string>{"WorkerFailed"});
  EXPECT_TRUE(failing.events[0].warning);
  EXPECT_EQ(failing.events[0].message, "worker 1 (mrpc-worker-1 on node-a) exited with code 3");
  EXPECT_EQ(sim.status().phase, api::Phase::kRestarting);
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRestarting), "True");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRunning), "False");

  sim.settle();
  sim.run_all();
  EXPECT_EQ(reasons(sim.step()), std::vector<std::string>{"Running"});
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRestarting), "False");

  sim.succeed(0);
  sim.succeed(1);
  EXPECT_EQ(reasons(sim.step()), std::vector<std::string>{"Succeeded"});
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kSucceeded), "True");
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kRunning), "False");
}

TEST(Status, KeepsTheTimeOfTheLastTransition) {
  JobSimulator sim;
  sim.start();
  sim.pass(seconds(100));
  sim.job().metadata.generation = 2;
  sim.settle();
  const api::Condition* running = sim.status().find_condition(api::condition::kRunning);
  EXPECT_EQ(running->last_transition_time, testing::kStart);
  EXPECT_EQ(running->observed_generation, 2);
  EXPECT_EQ(sim.status().observed_generation, 2);
}

TEST(Status, IsUnchangedByRoundingTimesToSeconds) {
  JobSimulator sim;
  sim.now += milliseconds(789);
  sim.start();
  sim.fail(1, 1);
  sim.settle();
  for (const api::Condition& c : sim.status().conditions) {
    EXPECT_EQ(std::chrono::floor<seconds>(*c.last_transition_time), *c.last_transition_time);
  }
  EXPECT_EQ(*sim.status().start_time, testing::kStart);
  EXPECT_EQ(*sim.status().failures[0].time, testing::kStart);
}

TEST(Progress, IsWrittenAtMostEveryTenSeconds) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 1;
  EXPECT_FALSE(sim.plan().status) << "no report yet";
  sim.observed.rendezvous->progress.total_steps = 100;
  sim.observed.rendezvous->progress.loss = 0.7;
  EXPECT_TRUE(sim.step().status) << "the first report is written at once";
  EXPECT_EQ(sim.status().progress->updated, testing::kStart);
  for (int second = 1; second < 10; ++second) {
    sim.pass(seconds(1));
    sim.observed.rendezvous->progress.step = second;
    const Plan plan = sim.step();
    EXPECT_FALSE(plan.status) << second;
    EXPECT_EQ(plan.requeue_after, WallTime::duration(seconds(10 - second)));
  }
  sim.pass(seconds(1));
  EXPECT_TRUE(sim.step().status);
  EXPECT_EQ(sim.status().progress->step, 9);
  sim.pass(seconds(60));
  EXPECT_FALSE(sim.step().status) << "unchanged progress is not written";
}

TEST(Progress, NamesSlowWorkersWithAnEvent) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  rendezvous::Progress& progress = sim.observed.rendezvous->progress;
  progress.step = 10;
  progress.total_steps = 100;
  sim.settle();
  progress.slow_workers = {{{1, 0}, 4, 1}, {{1, 2}, 1.5, 0}};
  sim.pass(seconds(10));
  const Plan plan = sim.step();
  EXPECT_TRUE(plan.status);
  ASSERT_EQ(reasons(plan), (std::vector<std::string>{"WorkerSlow", "WorkerSlow"}));
  EXPECT_TRUE(plan.events[0].warning);
  EXPECT_EQ(plan.events[0].message,
            "worker 1 takes 4.0 times as long as the others; it computes 1 virtual shard");
  EXPECT_EQ(plan.events[1].message,
            "worker 1 (process 2) takes 1.5 times as long as the others; virtual shards move "
            "only in exact trainings");
  EXPECT_EQ(
      sim.status().progress->slow_workers,
      (std::vector<api::SlowWorker>{{.index = 1, .process = 0, .slowdown = 4, .shards = 1},
                                    {.index = 1, .process = 2, .slowdown = 1.5, .shards = 0}}));
  progress.slow_workers.front().slowdown = 5;
  sim.pass(seconds(10));
  EXPECT_TRUE(reasons(sim.step()).empty()) << "both were named before";
  progress.slow_workers.clear();
  sim.pass(seconds(10));
  EXPECT_TRUE(reasons(sim.step()).empty());
  EXPECT_TRUE(sim.status().progress->slow_workers.empty());
}

// The last report of the workers outlives them.
TEST(Progress, NamesNoSlowWorkersWhenNothingTrains) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.total_steps = 100;
  sim.observed.rendezvous->progress.slow_workers = {{{1, 0}, 4, 1}};
  sim.settle();
  EXPECT_EQ(sim.status().progress->slow_workers.size(), 1U);
  sim.job().spec.run_policy.suspend = true;
  sim.settle();
  EXPECT_TRUE(sim.status().progress->slow_workers.empty());
}

TEST(Progress, OmitsNumbersThatAreNotFinite) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.total_steps = 100;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  rendezvous::Progress& progress = sim.observed.rendezvous->progress;
  progress.loss = progress.epoch_of_data = progress.examples_per_second =
      progress.tokens_per_second = kNan;
  progress.metrics = {{"eval_loss", 0.5},
                      {"eval_pearson", kNan},
                      {"eval_spearmanr", -std::numeric_limits<double>::infinity()}};
  sim.settle();
  EXPECT_FALSE(sim.status().progress->loss);
  EXPECT_EQ(sim.status().progress->epoch, 0);
  EXPECT_EQ(sim.status().progress->examples_per_second, 0);
  EXPECT_EQ(sim.status().progress->tokens_per_second, 0);
  EXPECT_EQ(sim.status().progress->metrics, (std::map<std::string, double>{{"eval_loss", 0.5}}));
  EXPECT_EQ(sim.status().progress->learning_rate, 0);
}

TEST(Progress, IsWrittenWithOtherChangesAndKeptWithoutARendezvous) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.total_steps = 100;
  sim.step();
  sim.observed.rendezvous->progress.step = 5;
  sim.observed.rendezvous->progress.last_checkpoint_step = 4;
  sim.fail(1, 1);
  sim.step();
  EXPECT_EQ(sim.status().progress->step, 5);
  EXPECT_EQ(sim.status().progress->last_checkpoint, "checkpoint-4");
  sim.observed.rendezvous.reset();
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(sim.status().progress->step, 5);
}

TEST(Progress, KeepsTheLastCheckpoint) {
  EXPECT_EQ(last_checkpoint_step({}), -1);
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->progress.total_steps = 100;
  sim.observed.rendezvous->progress.last_checkpoint_step = 4;
  sim.settle();
  EXPECT_EQ(last_checkpoint_step(sim.status()), 4);
  sim.observed.rendezvous->progress.last_checkpoint_step = -1;
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(last_checkpoint_step(sim.status()), 4);
  for (const char* name : {"", "checkpoint-", "checkpoint-x", "checkpoint--1", "other-4"}) {
    sim.status().progress->last_checkpoint = name;
    EXPECT_EQ(last_checkpoint_step(sim.status()), -1) << name;
  }
}

TEST(Counts, AreWrittenOnceForPodsThatStartTogether) {
  JobSimulator sim(testing::make_job(5));
  sim.settle();
  int writes = 0;
  for (int index = 0; index < 5; ++index) {
    Worker& worker = sim.worker(index);
    worker.phase = WorkerPhase::kRunning;
    worker.ready = true;
    worker.started = sim.now;
    writes += sim.step().status.has_value();
  }
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(sim.status().replicas.ready, 5);
}

TEST(Counts, AreWrittenOnceTheyHaveSettled) {
  JobSimulator sim(testing::make_job(3));
  sim.settle();
  sim.pass(seconds(10));
  sim.worker(0).phase = WorkerPhase::kRunning;
  sim.worker(0).ready = true;
  sim.worker(0).started = sim.now;
  const Plan early = sim.step();
  EXPECT_FALSE(early.status);
  EXPECT_EQ(early.requeue_after, WallTime::duration(seconds(10)));
  sim.pass(seconds(10));
  EXPECT_TRUE(sim.step().status);
  EXPECT_EQ(sim.status().replicas.ready, 1);
}

// On a busy cluster pods take a while to start. Until then the status would only change the count
// of created pods.
TEST(Counts, IncludePodsThatStayPendingForHalfAMinute) {
  JobSimulator sim(testing::make_job(3));
  sim.settle();
  EXPECT_EQ(sim.status().replicas.active, 0);
  sim.pass(seconds(29));
  const Plan early = sim.step();
  EXPECT_FALSE(early.status);
  EXPECT_EQ(early.requeue_after, WallTime::duration(seconds(1)));
  sim.pass(seconds(1));
  EXPECT_TRUE(sim.step().status);
  EXPECT_EQ(sim.status().replicas.active, 3);
}

// A new coordinator must not reuse an epoch's number, so it is written without waiting for the next
// progress write.
TEST(Status, RecordsTheHighestEpochAtOnce) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous.emplace();
  sim.observed.rendezvous->epoch = 3;
  sim.observed.rendezvous->latest_epoch = 3;
  EXPECT_TRUE(sim.step().status);
  EXPECT_EQ(sim.status().rendezvous_epoch, 3);
  sim.observed.rendezvous->latest_epoch = 2;  // from a coordinator that has just started
  sim.settle();
  EXPECT_EQ(sim.status().rendezvous_epoch, 3);
}

TEST(Blocked, ReportsAWorkerStuckInDeletion) {
  const struct {
    const char* what;
    WorkerPhase phase;
    bool node_ready;
    const char* node;
    const char* condition;
    const char* sentence;
  } cases[] = {
      {"a finalizer, or an unresponsive kubelet", WorkerPhase::kRunning, true, "node-b",
       "DeletionHangs",
       "mrpc-worker-1 is still terminating after its grace period: node node-b has not "
       "confirmed that it stopped, or a finalizer blocks its deletion; the worker is recreated "
       "when the pod is gone"},
      {"the container has ended", WorkerPhase::kFailed, true, "node-b", "DeletionHangs",
       "mrpc-worker-1 is still terminating after its grace period: node node-b has not "
       "confirmed that it stopped, or a finalizer blocks its deletion; the worker is recreated "
       "when the pod is gone"},
      {"no node", WorkerPhase::kPending, true, "", "DeletionHangs",
       "mrpc-worker-1 is still terminating after its grace period: a finalizer blocks its "
       "deletion; the worker is recreated when the pod is gone"},
      {"the node is not ready, the worker sends heartbeats", WorkerPhase::kRunning, false, "node-b",
       "NodeNotReady",
       "mrpc-worker-1 is being deleted, but node node-b is not ready and cannot confirm it; the "
       "worker is recreated when node-b is ready again or when the worker's heartbeats stop"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    JobSimulator sim;
    sim.start();
    Worker& worker = sim.worker(1);
    worker.terminating = true;
    worker.deletion_deadline = sim.now + seconds(30);
    worker.phase = c.phase;
    worker.node_state = c.node_ready ? NodeState::kReady : NodeState::kNotReady;
    worker.node = c.node;
    sim.observed.rendezvous = RendezvousView{};
    sim.observed.rendezvous->members[1].rank = 1;
    // After the grace period a kubelet kills the container and needs some time to clean up.
    for (const seconds wait : {seconds(0), seconds(59)}) {
      sim.pass(wait);
      sim.settle();
      EXPECT_NE(testing::condition(sim.status(), api::condition::kBlocked), "True");
      EXPECT_TRUE(sim.plan().requeue_after);
    }
    sim.pass(seconds(1));
    const Plan plan = sim.step();
    EXPECT_EQ(reasons(plan), std::vector<std::string>{c.condition});
    const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
    ASSERT_NE(blocked, nullptr);
    EXPECT_EQ(blocked->message, c.sentence);
    sim.finish_deletions();
    sim.start();
    EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
  }
}

// A pod's spec is immutable: a change of the resources or the image needs a new pod.
TEST(StuckWorker, IsRecreatedWhenTheSpecChanges) {
  JobSimulator sim;
  sim.graceful = true;
  sim.settle();
  for (Worker& worker : sim.observed.workers) worker.generation = 1;
  sim.run_all();
  sim.block(1, StartProblemCause::kImageNotAvailable);
  sim.settle();
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "ImageNotAvailable");

  sim.job().spec.worker.image = "another";
  sim.job().metadata.generation = 2;
  const Plan plan = sim.step();
  ASSERT_EQ(plan.deletions.size(), 1U) << "a running worker is left alone";
  EXPECT_EQ(plan.deletions[0].name, "mrpc-worker-1");
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->counted_pods, std::vector<std::string>{"uid-2"})
      << "the deletion is no failure";
  EXPECT_EQ(testing::condition(*plan.status, api::condition::kBlocked), "False");
  EXPECT_TRUE(sim.step().deletions.empty());
  sim.finish_deletions();
  EXPECT_EQ(sim.step().creations.size(), 1U);
  sim.worker(1).generation = 2;
  sim.block(1, StartProblemCause::kImageNotAvailable);
  EXPECT_TRUE(sim.step().deletions.empty()) << "created from the current generation";
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "True");
  EXPECT_EQ(sim.status().restarts.total(), 0);
  EXPECT_TRUE(sim.status().failures.empty());
}

TEST(Blocked, ReportsAnApiServerRejection) {
  JobSimulator sim;
  sim.settle();
  sim.observed.workers.clear();
  sim.status().replicas = {};
  sim.observed.rejection =
      Rejection{RejectionCause::kQuotaExceeded, "pods \"mrpc-worker-0\" is forbidden"};
  const Plan plan = sim.step();
  EXPECT_EQ(plan.creations.size(), 2U) << "retried";
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "QuotaExceeded");
}

TEST(Blocked, ReportsWorkersThatNeverJoin) {
  JobSimulator sim;
  sim.start();
  EXPECT_EQ(sim.plan().requeue_after, WallTime::duration(seconds(60)));
  sim.pass(seconds(60));
  sim.settle();
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "NotJoined");
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 1;
  sim.settle();
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
}

TEST(Blocked, NamesAWorkerThatLacksTheInstructionSet) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 1;
  sim.observed.rendezvous->isa = "amx";
  sim.observed.rendezvous->members[0] = {};
  sim.observed.rendezvous->members[1].lacks_isa = true;
  sim.settle();
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "InstructionSetMissing");
  EXPECT_EQ(sim.status().instruction_set, "amx");
  sim.observed.rendezvous->members[1].lacks_isa = false;
  sim.settle();
  EXPECT_EQ(testing::condition(sim.status(), api::condition::kBlocked), "False");
}

TEST(InstructionSet, MovesAWorkerToAnotherNode) {
  JobSimulator sim;
  sim.start();
  const std::string uid = sim.worker(1).uid;
  sim.worker(1).node = "node-b";
  const auto node = [](const std::string& name) {
    return Node{name,
                false,
                {},
                {{"cpu", *api::parse_quantity("64")}, {"memory", *api::parse_quantity("256Gi")}}};
  };
  sim.observed.nodes = std::make_shared<std::vector<Node>>(std::vector{node("node-b")});
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 1;
  sim.observed.rendezvous->isa = "amx";
  sim.observed.rendezvous->members[0] = {};
  sim.observed.rendezvous->members[1].lacks_isa = true;
  sim.settle();
  EXPECT_EQ(sim.worker(1).uid, uid) << "no other node";
  EXPECT_EQ(testing::reason(sim.status(), api::condition::kBlocked), "InstructionSetMissing");

  sim.observed.nodes =
      std::make_shared<std::vector<Node>>(std::vector{node("node-b"), node("node-c")});
  const Plan move = sim.step();
  ASSERT_EQ(move.deletions.size(), 1U);
  EXPECT_EQ(move.deletions[0].uid, uid);
  EXPECT_EQ(move.deletions[0].reason, DeletionReason::kInstructionSetMissing);
  ASSERT_TRUE(move.status) << "written before the worker is deleted";
  EXPECT_EQ(move.status->excluded_nodes, std::vector<std::string>{"node-b"});
  EXPECT_EQ(testing::condition(*move.status, api::condition::kBlocked), "False");
  sim.observed.rendezvous->members.erase(1);
  const Plan create = sim.step();
  ASSERT_EQ(create.creations.size(), 1U);
  EXPECT_EQ(create.node_constraint.excluded_nodes, std::vector<std::string>{"node-b"});
  EXPECT_EQ(sim.status().restarts.total(), 0) << "a move is no restart";
}

TEST(Blocked, DoesNotReportFinishedWorkersAsNotJoined) {
  JobSimulator sim;
  sim.start();
  sim.observed.rendezvous = RendezvousView{};
  sim.observed.rendezvous->epoch = 1;
  sim.observed.rendezvous->progress.total_steps = 100;
  sim.settle();
  sim.observed.rendezvous->epoch = 0;  // the rendezvous was closed, or the coordinator is new
  sim.pass(seconds(600));
  sim.settle();
  EXPECT_NE(testing::condition(sim.status(), api::condition::kBlocked), "True");
}

TEST(OwnedResources, AreCreatedOnceAndRecreatedAfterDeletion) {
  JobSimulator sim;
  sim.observed.runtime.owned_resources = {
      OwnedResource::kKeySecret, OwnedResource::kHeadlessService, OwnedResource::kNetworkPolicy};
  const Plan plan = sim.step();
  EXPECT_EQ(plan.ensure.size(), 3U);
  EXPECT_TRUE(sim.plan().ensure.empty());
  sim.observed.owned_resources.erase(OwnedResource::kHeadlessService);
  EXPECT_EQ(sim.plan().ensure, std::vector<OwnedResource>{OwnedResource::kHeadlessService});
}

}  // namespace
}  // namespace tilewright::policy
