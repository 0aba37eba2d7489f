// The Blocked condition for the reasons and messages of scheduler, kubelet and attach-detach
// controller. tests/integration/attach_test.cpp runs the attach-detach controller itself.
#include "controller/cluster/diagnose.h"

#include <gmock/gmock.h>

#include "controller/policy/messages.h"
#include "tests/unit/controller/policy/job_simulator.h"

namespace tilewright::cluster {
namespace {

using nlohmann::json;
using policy::testing::JobSimulator;

// Sets the state of a worker whose pod or events report `reason` and `message`.
void report(JobSimulator& sim, int index, const std::string& reason,
            const std::string& message = "") {
  policy::Worker& worker = sim.worker(index);
  worker.reason = reason;
  worker.message = message;
  worker.start_problem = diagnose_start(reason, message, &sim.job());
}

json claim(const char* name) { return {{"persistentVolumeClaim", {{"claimName", name}}}}; }

// The volume of worker 1 cannot be attached.
struct MultiAttach : ::testing::Test {
  JobSimulator sim;

  void SetUp() override {
    sim.job().spec.volumes = {{"work", std::nullopt, claim("work")}};
    sim.settle();
  }
  policy::Message blocked_by(const std::string& volume_is) {
    report(sim, 1, "FailedAttachVolume",
           "Multi-Attach error for volume \"pv-1\" Volume is " + volume_is);
    sim.step();
    const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
    return blocked == nullptr ? policy::Message{}
                              : policy::Message{blocked->reason, blocked->message};
  }
};

TEST_F(MultiAttach, NamesTheClaimAndThePodsThatUseIt) {
  const policy::Message blocked_reason = blocked_by("already used by pod(s) stranger");
  EXPECT_EQ(blocked_reason.reason, "ClaimInUse");
  EXPECT_EQ(
      blocked_reason.text,
      "PersistentVolumeClaim work can be attached to only one node, and pods on another node use "
      "it (stranger); mrpc-worker-1 starts when the volume is detached");
  EXPECT_EQ(
      blocked_by("already used by pod(s) stranger, friend").text,
      "PersistentVolumeClaim work can be attached to only one node, and pods on another node use "
      "it (stranger, friend); mrpc-worker-1 starts when the volume is detached");
  EXPECT_EQ(
      blocked_by("already used by pod(s) a and 2 pod(s) in different namespaces").text,
      "PersistentVolumeClaim work can be attached to only one node, and pods on another node use "
      "it (a and 2 pod(s) in different namespaces); mrpc-worker-1 starts when the volume is "
      "detached");
}

TEST_F(MultiAttach, ReportsAVolumeWhosePodsAreGone) {
  EXPECT_EQ(
      blocked_by("already exclusively attached to one node and can't be attached to another").text,
      "PersistentVolumeClaim work can be attached to only one node, and it is still attached "
      "to another node; mrpc-worker-1 starts when the volume is detached");
}

TEST_F(MultiAttach, NamesTheVolumeIfTheJobHasSeveralClaims) {
  sim.job().spec.volumes.push_back({"data", std::nullopt, claim("data")});
  sim.job().spec.volumes.push_back({"again", std::nullopt, claim("work")});
  sim.job().spec.volumes.push_back({"scratch", std::nullopt, {{"emptyDir", json::object()}}});
  sim.job().spec.worker.pod_template = {
      {"spec",
       {{"volumes", {{{"name", "more"}, {"persistentVolumeClaim", {{"claimName", "more"}}}}}}}}};
  EXPECT_EQ(blocked_by("already used by pod(s) stranger").text,
            "one of the PersistentVolumeClaims data, more, work (volume pv-1) can be attached to "
            "only one node, and pods on another node use it (stranger); mrpc-worker-1 starts when "
            "the volume is detached");
}

// Waiting would not help: the other worker uses the volume until the end of the training.
TEST_F(MultiAttach, ExplainsHowToPlaceWorkersOnOneNode) {
  const policy::Message blocked_reason = blocked_by("already used by pod(s) mrpc-worker-0");
  EXPECT_EQ(blocked_reason.reason, "ClaimInUse");
  EXPECT_EQ(
      blocked_reason.text,
      "PersistentVolumeClaim work can be attached to only one node, and mrpc-worker-0 uses it "
      "on node-a; set spec.worker.nodeSelector or spec.worker.affinity so that all workers run on "
      "one node; mrpc-worker-1 is then recreated");
  EXPECT_EQ(
      blocked_by("already used by pod(s) mrpc-worker-0, stranger").text,
      "PersistentVolumeClaim work can be attached to only one node, and pods on another node use "
      "it (mrpc-worker-0, stranger); mrpc-worker-1 starts when the volume is detached");
}

TEST_F(MultiAttach, ReportsTheEventMessageWhenTheJobHasNoClaim) {
  sim.job().spec.volumes.clear();
  const policy::Message blocked_reason =
      blocked_by("already used by 2 pod(s) in different namespaces");
  EXPECT_EQ(blocked_reason.reason, "FailedAttachVolume");
  EXPECT_EQ(blocked_reason.text,
            "a volume of mrpc-worker-1 cannot be attached to its node: Multi-Attach error for "
            "volume \"pv-1\" Volume is already used by 2 pod(s) in different namespaces; "
            "Kubernetes keeps retrying");
}

struct BlockedCase {
  const char* reason;
  const char* message;
  const char* condition;
  const char* sentence;
};

TEST(Blocked, ExplainsWhyAJobDoesNotRun) {
  const BlockedCase cases[] = {
      {"Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", "Unschedulable",
       "no node can run mrpc-worker-1: 0/3 nodes are available: 3 Insufficient cpu; the scheduler "
       "keeps retrying"},
      {"Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"work\" not found.",
       "ClaimNotFound",
       "PersistentVolumeClaim work does not exist in this namespace; workers start when it is "
       "created"},
      {"Unschedulable",
       "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and "
       "ReadWriteOncePod access mode.",
       "ClaimInUse",
       "another pod uses a PersistentVolumeClaim of mrpc-worker-1 that has access mode "
       "ReadWriteOncePod; the worker is scheduled when that pod is gone"},
      {"FailedAttachVolume", "AttachVolume.Attach failed for volume \"pv-1\" : rpc error",
       "FailedAttachVolume",
       "a volume of mrpc-worker-1 cannot be attached to its node: AttachVolume.Attach failed for "
       "volume \"pv-1\" : rpc error; Kubernetes keeps retrying"},
      {"SchedulingGated", "", "SchedulingGated",
       "mrpc-worker-1 waits for its scheduling gates to be removed"},
      {"ErrImagePull", "rpc error", "ImageNotAvailable",
       "the image my-image of mrpc-worker-1 cannot be pulled; the kubelet keeps retrying"},
      {"ImagePullBackOff", "Back-off pulling", "ImageNotAvailable",
       "the image my-image of mrpc-worker-1 cannot be pulled; the kubelet keeps retrying"},
      {"CreateContainerConfigError", "secret \"x\" not found", "CreateContainerConfigError",
       "mrpc-worker-1 cannot start: secret \"x\" not found; the kubelet keeps retrying"},
  };
  for (const BlockedCase& c : cases) {
    SCOPED_TRACE(c.reason);
    JobSimulator sim;
    sim.job().spec.worker.image = "my-image";
    sim.settle();
    report(sim, 1, c.reason, c.message);
    const policy::Plan plan = sim.step();
    ASSERT_EQ(plan.events.size(), 1U);
    EXPECT_EQ(plan.events[0].reason, c.condition);
    const api::Condition* blocked = sim.status().find_condition(api::condition::kBlocked);
    ASSERT_NE(blocked, nullptr);
    EXPECT_EQ(blocked->status, api::ConditionStatus::kTrue);
    EXPECT_EQ(blocked->reason, c.condition);
    EXPECT_EQ(blocked->message, c.sentence);
    sim.run_all();
    sim.settle();
    EXPECT_EQ(policy::testing::condition(sim.status(), api::condition::kBlocked), "False");
  }
}

TEST(Blocked, DoesNotFlapBetweenAlternatingKubeletReasons) {
  JobSimulator sim;
  sim.settle();
  report(sim, 0, "ErrImagePull");
  EXPECT_TRUE(sim.step().status);
  for (const char* reason : {"ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"}) {
    report(sim, 0, reason);
    EXPECT_FALSE(sim.step().status);
  }
}

// Reasons as the sources of Kubernetes 1.34 spell them.
TEST(DiagnoseFailure, RecognizesInfrastructureReasons) {
  for (const char* reason : {
           "Evicted", "Preempting", "OutOfcpu", "OutOfephemeral-storage", "OutOfhugepages-2Mi",
           "OutOfnvidia.com/gpu", "NodeAffinity", "UnexpectedAdmissionError",
           "TopologyAffinityError",   // kubelet
           "Terminated",              // kubelet, shutdown of the node
           "ContainerStatusUnknown",  // kubelet, after it lost the container
           "NodeLost",                // node lifecycle controller
           "PreemptionByScheduler", "DeletionByTaintManager", "DeletionByPodGC",
           "EvictionByEvictionAPI", "TerminationByKubelet",  // DisruptionTarget condition
       }) {
    EXPECT_EQ(diagnose_failure(reason), api::FailureCause::kInfrastructure) << reason;
  }
  EXPECT_EQ(diagnose_failure("OOMKilled"), api::FailureCause::kOutOfMemory);
  for (const char* reason : {"", "Error", "Completed", "StartError"}) {
    EXPECT_EQ(diagnose_failure(reason), api::FailureCause::kProgram) << reason;
  }
}

TEST(DiagnoseStart, IgnoresANormalStart) {
  for (const char* reason : {"", "ContainerCreating", "PodInitializing"}) {
    EXPECT_FALSE(diagnose_start(reason, "")) << reason;
  }
}

}  // namespace
}  // namespace tilewright::cluster
