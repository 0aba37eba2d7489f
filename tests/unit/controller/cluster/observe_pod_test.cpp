// Pods as an API server returns them.
#include "controller/cluster/observe_pod.h"

#include <gtest/gtest.h>

namespace tilewright::cluster {
namespace {

using api::FailureCause;
using nlohmann::json;
using policy::StartProblemCause;
using policy::WorkerPhase;

json pod(const char* status) {
  json result = json::parse(R"({
    "metadata": {"name": "mrpc-worker-1", "uid": "u-1",
                 "creationTimestamp": "2026-01-01T00:00:00Z",
                 "labels": {"tilewright.dev/worker-index": "1"}},
    "spec": {"nodeName": "node-a"}})");
  result["status"] = json::parse(status);
  return result;
}

TEST(ObservePod, ReadsARunningPod) {
  const auto worker = worker_of_pod(pod(R"({"phase": "Running",
    "conditions": [{"type": "PodScheduled", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:01Z"},
                   {"type": "Ready", "status": "True"}],
    "containerStatuses": [{"name": "sidecar", "state": {"terminated": {"exitCode": 9}}},
      {"name": "worker", "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}}}]})"));
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->name, "mrpc-worker-1");
  EXPECT_EQ(worker->index, 1);
  EXPECT_EQ(worker->uid, "u-1");
  EXPECT_EQ(worker->node, "node-a");
  EXPECT_EQ(worker->phase, WorkerPhase::kRunning);
  EXPECT_TRUE(worker->ready);
  EXPECT_FALSE(worker->terminating);
  EXPECT_FALSE(worker->exit_code);
  EXPECT_EQ(*worker->scheduled - *worker->created, std::chrono::seconds(1));
  EXPECT_EQ(*worker->started - *worker->created, std::chrono::seconds(3));
}

struct Ended {
  const char* status;
  WorkerPhase phase;
  std::optional<int> code;
  const char* reason;
  FailureCause cause = FailureCause::kProgram;
  std::optional<StartProblemCause> start_problem = std::nullopt;
};

TEST(ObservePod, ReadsWhyAContainerEndedOrWaits) {
  const Ended cases[] = {
      {R"({"phase": "Succeeded", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 0, "reason": "Completed"}}}]})",
       WorkerPhase::kSucceeded, 0, "Completed"},
      {R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})",
       WorkerPhase::kFailed, 137, "OOMKilled", FailureCause::kOutOfMemory},
      {R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 0, "signal": 9, "reason": "Error"}}}]})",
       WorkerPhase::kFailed, 137, "Error"},
      {R"({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."})",
       WorkerPhase::kFailed, std::nullopt, "Evicted", FailureCause::kInfrastructure},
      {R"({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 0, "reason": "Completed"}}}]})",
       WorkerPhase::kSucceeded, 0, "Evicted", FailureCause::kInfrastructure},
      {R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 255, "reason": "Unknown"}}}]})",
       WorkerPhase::kFailed, 255, "Unknown", FailureCause::kInfrastructure},
      {R"({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
           "reason": "PreemptionByScheduler"}], "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 143, "reason": "Error"}}}]})",
       WorkerPhase::kFailed, 143, "PreemptionByScheduler", FailureCause::kInfrastructure},
      {R"({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
           "reason": "Unschedulable", "message": "0/1 nodes"}]})",
       WorkerPhase::kPending, std::nullopt, "Unschedulable", FailureCause::kProgram,
       StartProblemCause::kUnschedulable},
      {R"({"phase": "Pending", "containerStatuses": [{"name": "worker", "state":
           {"waiting": {"reason": "ImagePullBackOff"}}}]})",
       WorkerPhase::kPending, std::nullopt, "ImagePullBackOff", FailureCause::kProgram,
       StartProblemCause::kImageNotAvailable},
      {R"({"phase": "Pending", "containerStatuses": [{"name": "worker", "state":
           {"waiting": {"reason": "ContainerCreating"}}}]})",
       WorkerPhase::kPending, std::nullopt, "ContainerCreating"},
  };
  for (const Ended& c : cases) {
    SCOPED_TRACE(c.status);
    const auto worker = worker_of_pod(pod(c.status));
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->phase, c.phase);
    EXPECT_EQ(worker->exit_code, c.code);
    EXPECT_EQ(worker->reason, c.reason);
    EXPECT_EQ(worker->failure_cause, c.cause);
    ASSERT_EQ(worker->start_problem.has_value(), c.start_problem.has_value());
    if (c.start_problem) {
      EXPECT_EQ(worker->start_problem->cause, *c.start_problem);
    }
  }
}

// The pod's own container then waits with the reason PodInitializing for ever.
TEST(ObservePod, ReadsTheInitContainerThatFailed) {
  const json status = json::parse(R"({"phase": "Failed",
    "initContainerStatuses": [
      {"name": "wait", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
      {"name": "sidecar", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}},
      {"name": "fetch", "state": {"terminated": {"exitCode": 3, "reason": "Error",
        "message": "no such bucket", "finishedAt": "2026-01-01T00:00:03Z"}}},
      {"name": "later", "state": {"waiting": {"reason": "PodInitializing"}}}],
    "containerStatuses": [
      {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}]})");
  json object = pod("{}");
  object["status"] = status;
  const auto worker = worker_of_pod(object);
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->phase, WorkerPhase::kFailed);
  EXPECT_EQ(worker->init_container, "fetch");
  EXPECT_EQ(worker->exit_code, 3);
  EXPECT_EQ(worker->reason, "Error");
  EXPECT_EQ(worker->failure_cause, FailureCause::kProgram);
  EXPECT_EQ(worker->last_lines, "no such bucket");
  EXPECT_EQ(*worker->finished - *worker->created, std::chrono::seconds(3));

  object["status"]["initContainerStatuses"][2]["state"]["terminated"] = {{"exitCode", 137},
                                                                         {"reason", "OOMKilled"}};
  EXPECT_EQ(worker_of_pod(object)->failure_cause, FailureCause::kOutOfMemory);

  // A kubelet that evicts a pod kills its init containers.
  object["status"]["reason"] = "Evicted";
  object["status"]["initContainerStatuses"][2]["state"]["terminated"]["reason"] = "Error";
  EXPECT_EQ(worker_of_pod(object)->failure_cause, FailureCause::kInfrastructure);

  // A sidecar among the init containers is killed after the worker has ended.
  object["status"] = status;
  object["status"]["containerStatuses"][0]["state"] = {
      {"terminated", {{"exitCode", 1}, {"reason", "Error"}}}};
  EXPECT_EQ(worker_of_pod(object)->init_container, "");
  EXPECT_EQ(worker_of_pod(object)->exit_code, 1);
}

// Other containers can keep a pod running or make it fail.
TEST(ObservePod, TakesThePhaseOfTheWorkerContainer) {
  struct Case {
    const char* pod;
    int worker_code;
    WorkerPhase phase;
    bool still_running;
  };
  for (const Case& c : {Case{"Running", 0, WorkerPhase::kSucceeded, true},
                        Case{"Running", 1, WorkerPhase::kFailed, true},
                        Case{"Failed", 0, WorkerPhase::kSucceeded, false},
                        Case{"Failed", 3, WorkerPhase::kFailed, false},
                        Case{"Succeeded", 0, WorkerPhase::kSucceeded, false}}) {
    json object = pod("{}");
    object["status"] = {
        {"phase", c.pod},
        {"containerStatuses",
         {{{"name", "worker"}, {"state", {{"terminated", {{"exitCode", c.worker_code}}}}}},
          {{"name", "sidecar"}, {"state", {{"running", json::object()}}}}}}};
    const auto worker = worker_of_pod(object);
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->phase, c.phase) << c.pod << c.worker_code;
    EXPECT_EQ(worker->pod_still_running, c.still_running) << c.pod << c.worker_code;
    EXPECT_EQ(worker->exit_code, c.worker_code);
  }
}

// A kubelet reports the end of a pod's only container a moment before that of the pod.
TEST(ObservePod, IsStillRunningOnlyForOtherContainers) {
  for (const char* others :
       {R"([])", R"([{"name": "side", "state": {"terminated": {"exitCode": 0}}}])"}) {
    json object = pod(R"({"phase": "Running", "containerStatuses": [{"name": "worker",
        "state": {"terminated": {"exitCode": 0}}}]})");
    for (const json& other : json::parse(others)) {
      object["status"]["containerStatuses"].push_back(other);
    }
    const auto worker = worker_of_pod(object);
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->phase, WorkerPhase::kSucceeded) << others;
    EXPECT_FALSE(worker->pod_still_running) << others;
  }
}

// The kubelet stops a pod of a PyTorchJob, whose program exits with 0 on SIGTERM.
TEST(ObservePod, WaitsForThePhaseOfAPodThatRunsAnyProgram) {
  json object = pod(R"({"phase": "Running", "containerStatuses": [{"name": "pytorch", "state":
      {"terminated": {"exitCode": 0, "reason": "Completed"}}}]})");
  object["metadata"]["ownerReferences"] = {{{"kind", "PyTorchJob"}}};
  EXPECT_EQ(worker_of_pod(object)->phase, WorkerPhase::kRunning);
  EXPECT_FALSE(worker_of_pod(object)->exit_code);
  object["status"]["phase"] = "Succeeded";
  EXPECT_EQ(worker_of_pod(object)->phase, WorkerPhase::kSucceeded);
  object["status"].update({{"phase", "Failed"}, {"reason", "Terminated"}});
  EXPECT_EQ(worker_of_pod(object)->failure_cause, FailureCause::kInfrastructure);
  object["status"] = {{"phase", "Running"},
                      {"containerStatuses",
                       {{{"name", "pytorch"}, {"state", {{"terminated", {{"exitCode", 0}}}}}},
                        {{"name", "sidecar"}, {"state", {{"running", json::object()}}}}}}};
  EXPECT_EQ(worker_of_pod(object)->phase, WorkerPhase::kSucceeded) << "which may run for ever";
}

TEST(ObservePod, IgnoresExitCodesAndSignalsThatDoNotExist) {
  const auto exit_code = [](const char* code, const char* signal) {
    json status = json::parse(R"({"phase": "Failed", "containerStatuses": [{"name": "worker"}]})");
    status["containerStatuses"][0]["state"]["terminated"] = {{"exitCode", json::parse(code)},
                                                             {"signal", json::parse(signal)}};
    json failed = pod("{}");
    failed["status"] = std::move(status);
    return worker_of_pod(failed)->exit_code;
  };
  EXPECT_EQ(exit_code("1", "0"), 1);
  EXPECT_EQ(exit_code("1", "64"), 192);
  EXPECT_EQ(exit_code("1", "65"), 1);
  EXPECT_EQ(exit_code("1", "2147483647"), 1) << "128 + signal overflows";
  EXPECT_EQ(exit_code("1", "4294967305"), 1) << "the low 32 bits are 9";
  EXPECT_EQ(exit_code("4294967296", "0"), std::nullopt) << "the low 32 bits are 0, success";
  EXPECT_EQ(exit_code("18446744073709551615", "0"), std::nullopt);
}

TEST(ObservePod, ReadsTheGenerationOfTheJob) {
  json object = pod(R"({"phase": "Running"})");
  EXPECT_FALSE(worker_of_pod(object)->generation);
  object["metadata"]["annotations"]["tilewright.dev/job-generation"] = "3";
  EXPECT_EQ(worker_of_pod(object)->generation, 3);
  object["metadata"]["annotations"]["tilewright.dev/job-generation"] = "third";
  EXPECT_FALSE(worker_of_pod(object)->generation);
}

TEST(ObservePod, ReadsTheDeletionTimestamp) {
  json object = pod(R"({"phase": "Running"})");
  object["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z";
  EXPECT_TRUE(worker_of_pod(object)->terminating);
  EXPECT_EQ(worker_of_pod(object)->deletion_deadline, WallTime(std::chrono::seconds(1767225660)));
}

TEST(ObservePod, IgnoresPodsWithoutAWorkerIndex) {
  for (const char* index : {"", "x", "1x", "-"}) {
    json object = pod(R"({"phase": "Running"})");
    object["metadata"]["labels"]["tilewright.dev/worker-index"] = index;
    EXPECT_FALSE(worker_of_pod(object)) << index;
  }
  EXPECT_FALSE(worker_of_pod(json::object()));
  EXPECT_FALSE(worker_of_pod(json::parse(R"({"metadata": 3, "status": []})")));
}

}  // namespace
}  // namespace tilewright::cluster
