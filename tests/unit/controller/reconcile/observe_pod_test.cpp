// Pods as an API server shows them.
#include "controller/reconcile/observe_pod.h"

#include <gtest/gtest.h>

namespace tilewright::reconcile {
namespace {

using nlohmann::json;

json pod(const char* status) {
  json result = json::parse(R"({
    "metadata": {"name": "mrpc-worker-1", "uid": "u-1",
                 "creationTimestamp": "2026-01-01T00:00:00Z",
                 "labels": {"tilewright.dev/worker-index": "1"}},
    "spec": {"nodeName": "node-a"}})");
  result["status"] = json::parse(status);
  return result;
}

TEST(Pod, ThatRuns) {
  const auto worker = worker_of_pod(pod(R"({"phase": "Running",
    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
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
  EXPECT_EQ(*worker->started - *worker->created, std::chrono::seconds(3));
}

struct Ended {
  const char* status;
  WorkerPhase phase;
  std::optional<int> code;
  const char* reason;
};

TEST(Pod, ThatEndedOrWaitsTellsWhy) {
  const Ended cases[] = {
      {R"({"phase": "Succeeded", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 0, "reason": "Completed"}}}]})",
       WorkerPhase::kSucceeded, 0, "Completed"},
      {R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})",
       WorkerPhase::kFailed, 137, "OOMKilled"},
      {R"({"phase": "Failed", "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 0, "signal": 9, "reason": "Error"}}}]})",
       WorkerPhase::kFailed, 137, "Error"},
      {R"({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."})",
       WorkerPhase::kFailed, std::nullopt, "Evicted"},
      {R"({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
           "reason": "PreemptionByScheduler"}], "containerStatuses": [{"name": "worker", "state":
           {"terminated": {"exitCode": 143, "reason": "Error"}}}]})",
       WorkerPhase::kFailed, 143, "PreemptionByScheduler"},
      {R"({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
           "reason": "Unschedulable", "message": "0/1 nodes"}]})",
       WorkerPhase::kPending, std::nullopt, "Unschedulable"},
      {R"({"phase": "Pending", "containerStatuses": [{"name": "worker", "state":
           {"waiting": {"reason": "ImagePullBackOff"}}}]})",
       WorkerPhase::kPending, std::nullopt, "ImagePullBackOff"},
  };
  for (const Ended& c : cases) {
    SCOPED_TRACE(c.status);
    const auto worker = worker_of_pod(pod(c.status));
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->phase, c.phase);
    EXPECT_EQ(worker->exit_code, c.code);
    EXPECT_EQ(worker->reason, c.reason);
  }
}

// Containers beside the worker keep a pod running, or fail it.
TEST(Pod, IsWhatItsWorkerIs) {
  struct Beside {
    const char* pod;
    int worker_code;
    WorkerPhase phase;
    bool goes_on;
  };
  for (const Beside& c : {Beside{"Running", 0, WorkerPhase::kSucceeded, true},
                          Beside{"Running", 1, WorkerPhase::kFailed, true},
                          Beside{"Failed", 0, WorkerPhase::kSucceeded, false},
                          Beside{"Failed", 3, WorkerPhase::kFailed, false},
                          Beside{"Succeeded", 0, WorkerPhase::kSucceeded, false}}) {
    json object = pod("{}");
    object["status"] = {
        {"phase", c.pod},
        {"containerStatuses",
         {{{"name", "worker"}, {"state", {{"terminated", {{"exitCode", c.worker_code}}}}}},
          {{"name", "sidecar"}, {"state", {{"running", json::object()}}}}}}};
    const auto worker = worker_of_pod(object);
    ASSERT_TRUE(worker);
    EXPECT_EQ(worker->phase, c.phase) << c.pod << c.worker_code;
    EXPECT_EQ(worker->pod_goes_on, c.goes_on) << c.pod << c.worker_code;
    EXPECT_EQ(worker->exit_code, c.worker_code);
  }
}

// Kubelets tell of a pod's only container that it has ended a moment before they say so of the pod.
TEST(Pod, GoesOnForOtherContainersOnly) {
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
    EXPECT_FALSE(worker->pod_goes_on) << others;
  }
}

TEST(Pod, TellsTheGenerationOfTheJobThatItWasMadeFrom) {
  json object = pod(R"({"phase": "Running"})");
  EXPECT_FALSE(worker_of_pod(object)->generation);
  object["metadata"]["annotations"]["tilewright.dev/job-generation"] = "3";
  EXPECT_EQ(worker_of_pod(object)->generation, 3);
  object["metadata"]["annotations"]["tilewright.dev/job-generation"] = "third";
  EXPECT_FALSE(worker_of_pod(object)->generation);
}

TEST(Pod, BeingDeletedIsTerminating) {
  json object = pod(R"({"phase": "Running"})");
  object["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z";
  EXPECT_TRUE(worker_of_pod(object)->terminating);
  EXPECT_EQ(worker_of_pod(object)->gone_by, WallTime(std::chrono::seconds(1767225660)));
}

TEST(Pod, ThatIsNotOursIsNoWorker) {
  for (const char* index : {"", "x", "1x", "-"}) {
    json object = pod(R"({"phase": "Running"})");
    object["metadata"]["labels"]["tilewright.dev/worker-index"] = index;
    EXPECT_FALSE(worker_of_pod(object)) << index;
  }
  EXPECT_FALSE(worker_of_pod(json::object()));
  EXPECT_FALSE(worker_of_pod(json::parse(R"({"metadata": 3, "status": []})")));
}

}  // namespace
}  // namespace tilewright::reconcile
