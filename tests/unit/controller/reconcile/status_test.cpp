// What stands in the status, when it is written, and the events that follow a write.
#include "controller/reconcile/status.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/reconcile/world.h"

namespace tilewright::reconcile {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::World;

std::vector<std::string> reasons(const Plan& plan) {
  std::vector<std::string> result;
  for (const Event& event : plan.events) result.push_back(event.reason);
  return result;
}

TEST(Events, TellOnceWhatTheOwnerWouldBetterHaveWritten) {
  World world;
  world.observed.advice = {"spec.worker.resources.cpu: found 500m"};
  const Plan first = world.step();
  EXPECT_EQ(reasons(first), (std::vector<std::string>{"Created", "Advice"}));
  EXPECT_EQ(first.events[1].message, "spec.worker.resources.cpu: found 500m");
  EXPECT_TRUE(first.events[1].warning);
  EXPECT_TRUE(reasons(world.step()).empty());
}

TEST(Status, TellsAJobsWholeLife) {
  World world;
  const Plan first = world.step();
  EXPECT_EQ(reasons(first), std::vector<std::string>{"Created"});
  EXPECT_EQ(world.status().phase, api::Phase::kPending);
  EXPECT_EQ(world.status().start_time, testing::kStart);
  EXPECT_EQ(world.status().observed_generation, 1);
  EXPECT_EQ(world.status().selector, "tilewright.dev/job-name=mrpc,tilewright.dev/role=worker");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kCreated), "True");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRunning), "False");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kFailed), "");

  world.run_all();
  const Plan running = world.step();
  EXPECT_EQ(reasons(running), std::vector<std::string>{"Running"});
  EXPECT_EQ(world.status().phase, api::Phase::kRunning);
  EXPECT_EQ(world.status().replicas, (api::ReplicaCounts{2, 2, 2, 0, 0}));

  world.pass(seconds(5));
  world.fail(1, 2);
  const Plan failing = world.step();
  EXPECT_EQ(reasons(failing), std::vector<std::string>{"WorkerFailed"});
  EXPECT_TRUE(failing.events[0].warning);
  EXPECT_EQ(failing.events[0].message, "worker 1 (mrpc-worker-1 on node-a) ended with exit code 2");
  EXPECT_EQ(world.status().phase, api::Phase::kRestarting);
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRestarting), "True");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRunning), "False");

  world.settle();
  world.run_all();
  EXPECT_EQ(reasons(world.step()), std::vector<std::string>{"Running"});
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRestarting), "False");

  world.succeed(0);
  world.succeed(1);
  EXPECT_EQ(reasons(world.step()), std::vector<std::string>{"Succeeded"});
  EXPECT_EQ(testing::condition(world.status(), api::condition::kSucceeded), "True");
  EXPECT_EQ(testing::condition(world.status(), api::condition::kRunning), "False");
}

TEST(Status, KeepsTheTimeOfTheLastTransition) {
  World world;
  world.start();
  world.pass(seconds(100));
  world.job().metadata.generation = 2;
  world.settle();
  const api::Condition* running = world.status().find_condition(api::condition::kRunning);
  EXPECT_EQ(running->last_transition_time, testing::kStart);
  EXPECT_EQ(running->observed_generation, 2);
  EXPECT_EQ(world.status().observed_generation, 2);
}

TEST(Status, SurvivesBeingWrittenAtWholeSeconds) {
  World world;
  world.now += milliseconds(789);
  world.start();
  world.fail(1, 1);
  world.settle();
  for (const api::Condition& c : world.status().conditions) {
    EXPECT_EQ(std::chrono::floor<seconds>(*c.last_transition_time), *c.last_transition_time);
  }
  EXPECT_EQ(*world.status().start_time, testing::kStart);
  EXPECT_EQ(*world.status().failures[0].time, testing::kStart);
}

TEST(Progress, IsWrittenEveryTenSecondsOnly) {
  World world;
  world.start();
  world.observed.progress = Progress{};
  world.observed.progress->rendezvous_epoch = 1;
  EXPECT_FALSE(world.plan().status) << "nobody has told anything yet";
  world.observed.progress->total_steps = 100;
  world.observed.progress->loss = 0.7;
  EXPECT_TRUE(world.step().status) << "the first news at once";
  EXPECT_EQ(world.status().progress->updated, testing::kStart);
  for (int second = 1; second < 10; ++second) {
    world.pass(seconds(1));
    world.observed.progress->step = second;
    const Plan plan = world.step();
    EXPECT_FALSE(plan.status) << second;
    EXPECT_EQ(plan.requeue_after, WallTime::duration(seconds(10 - second)));
  }
  world.pass(seconds(1));
  EXPECT_TRUE(world.step().status);
  EXPECT_EQ(world.status().progress->step, 9);
  world.pass(seconds(60));
  EXPECT_FALSE(world.step().status) << "no news, no write";
}

TEST(Progress, GoesAlongWithAnyOtherChangeAndStaysWhenTheRendezvousIsGone) {
  World world;
  world.start();
  world.observed.progress = Progress{};
  world.observed.progress->total_steps = 100;
  world.step();
  world.observed.progress->step = 5;
  world.observed.progress->last_checkpoint_step = 4;
  world.fail(1, 1);
  world.step();
  EXPECT_EQ(world.status().progress->step, 5);
  EXPECT_EQ(world.status().progress->last_checkpoint, "checkpoint-4");
  world.observed.progress.reset();
  world.pass(seconds(60));
  world.settle();
  EXPECT_EQ(world.status().progress->step, 5);
}

TEST(Counts, AreWrittenOnceForPodsThatStartTogether) {
  World world(testing::make_job(5));
  world.settle();
  int writes = 0;
  for (int index = 0; index < 5; ++index) {
    Worker& worker = world.worker(index);
    worker.phase = WorkerPhase::kRunning;
    worker.ready = true;
    worker.started = world.now;
    writes += world.step().status.has_value();
  }
  EXPECT_EQ(writes, 1);
  EXPECT_EQ(world.status().replicas.ready, 5);
}

TEST(Counts, AreWrittenOnceTheyHaveSettled) {
  World world(testing::make_job(3));
  world.settle();
  world.pass(seconds(10));
  world.worker(0).phase = WorkerPhase::kRunning;
  world.worker(0).ready = true;
  world.worker(0).started = world.now;
  const Plan early = world.step();
  EXPECT_FALSE(early.status);
  EXPECT_EQ(early.requeue_after, WallTime::duration(seconds(10)));
  world.pass(seconds(10));
  EXPECT_TRUE(world.step().status);
  EXPECT_EQ(world.status().replicas.ready, 1);
}

// Pods that are there and do nothing yet: on a busy cluster they need a while to run, and the job
// says no more than before, that not all workers run.
TEST(Counts, TellOfPodsThatOnlyCameIntoBeingAfterHalfAMinute) {
  World world(testing::make_job(3));
  world.settle();
  EXPECT_EQ(world.status().replicas.active, 0);
  world.pass(seconds(29));
  const Plan early = world.step();
  EXPECT_FALSE(early.status);
  EXPECT_EQ(early.requeue_after, WallTime::duration(seconds(1)));
  world.pass(seconds(1));
  EXPECT_TRUE(world.step().status);
  EXPECT_EQ(world.status().replicas.active, 3);
}

// A new coordinator must not give an epoch's number out a second time, so it cannot wait for the
// next report of progress.
TEST(Status, KeepsTheHighestEpochAtOnce) {
  World world;
  world.start();
  world.observed.progress.emplace();
  world.observed.progress->rendezvous_epoch = 3;
  world.observed.progress->latest_epoch = 3;
  EXPECT_TRUE(world.step().status);
  EXPECT_EQ(world.status().rendezvous_epoch, 3);
  world.observed.progress->latest_epoch = 2;  // of a coordinator that has just begun
  world.settle();
  EXPECT_EQ(world.status().rendezvous_epoch, 3);
}

struct Obstructed {
  const char* reason;
  const char* message;
  const char* condition;
  const char* sentence;
};

TEST(Blocked, SaysWhyAJobDoesNotRunAndWhatComesNext) {
  const Obstructed cases[] = {
      {"Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", "Unschedulable",
       "no node can take mrpc-worker-1: 0/3 nodes are available: 3 Insufficient cpu.; it is placed "
       "as soon as one can"},
      {"Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"work\" not found.",
       "ClaimNotFound",
       "there is no PersistentVolumeClaim work in this namespace; workers start as soon as there "
       "is"},
      {"Unschedulable",
       "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and "
       "ReadWriteOncePod access mode.",
       "ClaimInUse",
       "a PersistentVolumeClaim of mrpc-worker-1 may be used by one pod alone (ReadWriteOncePod), "
       "and another pod uses it; it is placed as soon as that pod has gone"},
      {"FailedAttachVolume", "AttachVolume.Attach failed for volume \"pv-1\" : rpc error",
       "FailedAttachVolume",
       "a volume of mrpc-worker-1 cannot be attached to its node: AttachVolume.Attach failed for "
       "volume \"pv-1\" : rpc error; it is tried again until it can"},
      {"SchedulingGated", "", "SchedulingGated",
       "mrpc-worker-1 waits for its scheduling gates to be removed"},
      {"ErrImagePull", "rpc error", "ImageNotAvailable",
       "the image my-image of mrpc-worker-1 cannot be had; the kubelet tries again until it can"},
      {"ImagePullBackOff", "Back-off pulling", "ImageNotAvailable",
       "the image my-image of mrpc-worker-1 cannot be had; the kubelet tries again until it can"},
      {"CreateContainerConfigError", "secret \"x\" not found", "CreateContainerConfigError",
       "mrpc-worker-1 cannot be started: secret \"x\" not found; it is tried again until the cause "
       "goes"},
  };
  for (const Obstructed& c : cases) {
    SCOPED_TRACE(c.reason);
    World world;
    world.job().spec.worker.image = "my-image";
    world.settle();
    world.worker(1).reason = c.reason;
    world.worker(1).message = c.message;
    const Plan plan = world.step();
    EXPECT_EQ(reasons(plan), std::vector<std::string>{c.condition});
    const api::Condition* blocked = world.status().find_condition(api::condition::kBlocked);
    ASSERT_NE(blocked, nullptr);
    EXPECT_EQ(blocked->status, api::ConditionStatus::kTrue);
    EXPECT_EQ(blocked->reason, c.condition);
    EXPECT_EQ(blocked->message, c.sentence);
    world.run_all();
    world.settle();
    EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "False");
  }
}

TEST(Blocked, TellsOfAWorkerWhoseDeletionDoesNotCome) {
  const struct {
    const char* what;
    WorkerPhase phase;
    bool node_ready;
    const char* node;
    const char* condition;
    const char* sentence;
  } cases[] = {
      {"a finalizer, or a kubelet that hangs", WorkerPhase::kRunning, true, "node-b",
       "DeletionHangs",
       "mrpc-worker-1 is being deleted and has had its time to end, but is still there: node-b has "
       "not confirmed its end, or a finalizer holds it; it is made again as soon as it has gone"},
      {"the container has ended", WorkerPhase::kFailed, true, "node-b", "DeletionHangs",
       "mrpc-worker-1 is being deleted and has had its time to end, but is still there: node-b has "
       "not confirmed its end, or a finalizer holds it; it is made again as soon as it has gone"},
      {"no node", WorkerPhase::kPending, true, "", "DeletionHangs",
       "mrpc-worker-1 is being deleted and has had its time to end, but is still there: a "
       "finalizer holds it; it is made again as soon as it has gone"},
      {"a node that is away, and a worker that is not", WorkerPhase::kRunning, false, "node-b",
       "NodeNotReady",
       "mrpc-worker-1 is being deleted, but node-b does not report and cannot confirm its end; it "
       "is made again as soon as node-b does, or as soon as the worker is silent at the "
       "rendezvous, "
       "too"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    World world;
    world.start();
    Worker& worker = world.worker(1);
    worker.terminating = true;
    worker.gone_by = world.now + seconds(30);
    worker.phase = c.phase;
    worker.node_ready = c.node_ready;
    worker.node = c.node;
    world.observed.progress = Progress{};
    world.observed.progress->members[1].rank = 1;
    // A kubelet kills when the time is over, and needs some more to clear away.
    for (const seconds wait : {seconds(0), seconds(59)}) {
      world.pass(wait);
      world.settle();
      EXPECT_NE(testing::condition(world.status(), api::condition::kBlocked), "True");
      EXPECT_TRUE(world.plan().requeue_after);
    }
    world.pass(seconds(1));
    const Plan plan = world.step();
    EXPECT_EQ(reasons(plan), std::vector<std::string>{c.condition});
    const api::Condition* blocked = world.status().find_condition(api::condition::kBlocked);
    ASSERT_NE(blocked, nullptr);
    EXPECT_EQ(blocked->message, c.sentence);
    world.finish_deletions();
    world.start();
    EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "False");
  }
}

TEST(Blocked, DoesNotFlapWhileAKubeletTellsTwoReasonsInTurn) {
  World world;
  world.settle();
  world.worker(0).reason = "ErrImagePull";
  EXPECT_TRUE(world.step().status);
  for (const char* reason : {"ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"}) {
    world.worker(0).reason = reason;
    EXPECT_FALSE(world.step().status);
  }
}

// A pod's spec stands: whoever lowers what a worker asks for, or mends its image, gets another pod.
TEST(StuckWorker, IsMadeAnewWhenTheJobHasChanged) {
  World world;
  world.graceful = true;
  world.settle();
  for (Worker& worker : world.observed.workers) worker.generation = 1;
  world.run_all();
  world.worker(1).phase = WorkerPhase::kPending;
  world.worker(1).reason = "ImagePullBackOff";
  world.settle();
  EXPECT_EQ(testing::reason(world.status(), api::condition::kBlocked), "ImageNotAvailable");

  world.job().spec.worker.image = "another";
  world.job().metadata.generation = 2;
  const Plan plan = world.step();
  ASSERT_EQ(plan.deletions.size(), 1U) << "who runs is left alone";
  EXPECT_EQ(plan.deletions[0].name, "mrpc-worker-1");
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->counted_pods, std::vector<std::string>{"uid-2"}) << "nobody's failure";
  EXPECT_EQ(testing::condition(*plan.status, api::condition::kBlocked), "False");
  EXPECT_TRUE(world.step().deletions.empty());
  world.finish_deletions();
  EXPECT_EQ(world.step().creations.size(), 1U);
  world.worker(1).generation = 2;
  world.worker(1).reason = "ImagePullBackOff";
  EXPECT_TRUE(world.step().deletions.empty()) << "nothing new to try";
  EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "True");
  EXPECT_EQ(world.status().restarts.total(), 0);
  EXPECT_TRUE(world.status().failures.empty());
}

TEST(Blocked, TellsOfARefusal) {
  World world;
  world.settle();
  world.observed.workers.clear();
  world.status().replicas = {};
  world.observed.refusal = Refusal{"QuotaExceeded", "pods \"mrpc-worker-0\" is forbidden"};
  const Plan plan = world.step();
  EXPECT_EQ(plan.creations.size(), 2U) << "tried again";
  EXPECT_EQ(testing::reason(world.status(), api::condition::kBlocked), "QuotaExceeded");
}

TEST(Blocked, TellsOfWorkersThatNeverJoin) {
  World world;
  world.start();
  EXPECT_EQ(world.plan().requeue_after, WallTime::duration(seconds(60)));
  world.pass(seconds(60));
  world.settle();
  EXPECT_EQ(testing::reason(world.status(), api::condition::kBlocked), "NotJoined");
  world.observed.progress = Progress{};
  world.observed.progress->rendezvous_epoch = 1;
  world.settle();
  EXPECT_EQ(testing::condition(world.status(), api::condition::kBlocked), "False");
}

TEST(Blocked, DoesNotTakeTheEndOfTheTrainingForNeverHavingJoined) {
  World world;
  world.start();
  world.observed.progress = Progress{};
  world.observed.progress->rendezvous_epoch = 1;
  world.observed.progress->total_steps = 100;
  world.settle();
  world.observed.progress->rendezvous_epoch = 0;  // closed, or served by somebody new
  world.pass(seconds(600));
  world.settle();
  EXPECT_NE(testing::condition(world.status(), api::condition::kBlocked), "True");
}

TEST(Companions, AreMadeOnceAndBeforeAnyoneMissesThem) {
  World world;
  world.observed.runtime.companions = {Companion::kKeySecret, Companion::kHeadlessService,
                                       Companion::kNetworkPolicy};
  const Plan plan = world.step();
  EXPECT_EQ(plan.ensure.size(), 3U);
  EXPECT_TRUE(world.plan().ensure.empty());
  world.observed.companions.erase(Companion::kHeadlessService);
  EXPECT_EQ(world.plan().ensure, std::vector<Companion>{Companion::kHeadlessService});
}

}  // namespace
}  // namespace tilewright::reconcile
