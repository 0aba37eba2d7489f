// Two pods train layers of MiniLM through failures and disruptions and reach the hash of
// `tilewright up`.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <iostream>
#include <regex>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandResult;
using ::testing::HasSubstr;
using ::testing::Not;

// Enough that the job still runs when the status shows its first checkpoint, up to ten seconds
// late: a step of the first membership epoch takes at least 0.4 s.
constexpr int kSteps = 40;

// How worker 0's log names a worker 1 that has left after SIGTERM, and one that was killed.
constexpr const char* kLeft = "resized: worker 1 left";
constexpr const char* kLost = "recovered: worker 1 lost";

// Steps of eight sentence pairs with a checkpoint every eight steps.
json two_workers() {
  json job = testing::training_job(testing::Model::kMiniLm);
  json& spec = job["spec"];
  spec["elasticPolicy"] = {{"minReplicas", 1}, {"maxReplicas", 2}, {"maxRestarts", 3}};
  spec["worker"]["replicas"] = 2;
  spec["trainer"].update({{"per_device_train_batch_size", 4},
                          {"max_steps", kSteps},
                          {"save_steps", 8},
                          {"logging_steps", 1}});
  return job;
}

class TrainingOnACluster : public testing::TrainingJobTest {
 protected:
  TrainingOnACluster() : TrainingJobTest(testing::Model::kMiniLm) {}
  // With delays in epoch 2 too, which has both workers if the first began alone.
  void start() { start_with_delays({400, 200}); }
  // Delays above all the steps of epoch 2, in which worker 0 trains alone: the replacement of
  // worker 1 must join before the last step.
  void start_for_a_replacement() { start_with_delays({400, 2000}); }
  // `kubectl drain` of the job's pods that also match `selector`, without other pods of the node,
  // which is returned: it stays cordoned.
  std::string evict_pods(const std::string& selector = "") {
    std::string node = get("pod/mrpc-worker-0")["spec"]["nodeName"];
    add_cleanup({"uncordon", node});
    const std::string uid = job()["metadata"]["uid"];
    kubectl_ok({"drain", node, "--pod-selector=tilewright.dev/job-uid=" + uid + selector,
                "--delete-emptydir-data", "--force", "--timeout=100s"});
    return node;
  }
  // Worker 0 has kept the state while worker 1 was replaced: it has read no checkpoint and computed
  // at most one step again. Records the seconds from the end of the membership epoch until it
  // continued alone, which its log says in a line that begins with `change`.
  void expect_state_kept(const std::string& change) {
    const std::string log = kubectl_ok({"logs", "mrpc-worker-0"});
    EXPECT_THAT(log, Not(HasSubstr("resuming from")));
    EXPECT_THAT(log, HasSubstr("worker 1 joined"));
    const std::regex line(fmt::format("info step +([0-9]+)/{} ", kSteps));
    int last = 0;
    for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) {
      const int step = std::stoi((*at)[1]);
      EXPECT_GE(step, last) << log;
      last = step;
    }
    EXPECT_EQ(last, kSteps) << log;
    std::smatch continued;
    ASSERT_TRUE(std::regex_search(
        log, continued,
        std::regex(change + ".*; 1 worker continues after step [0-9]+ in ([0-9.]+) s .*")))
        << log;
    RecordProperty("seconds_to_continue", continued.str(1));
    std::cout << continued.str() << "\n";
  }
  // Worker 1's pod has ended after SIGTERM and was replaced, while worker 0 kept the state.
  void expect_pod_replaced() {
    wait_for_success();
    const json status = job()["status"];
    EXPECT_EQ(status["restarts"]["infrastructure"], 1) << status;
    EXPECT_EQ(status["restarts"]["program"], 0);
    EXPECT_EQ(status["failures"][0]["pod"], "mrpc-worker-1");
    expect_state_kept(kLeft);
    EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
  }

 private:
  // The local run has no delays.
  void start_with_delays(const std::vector<int>& milliseconds) {
    json job = two_workers();
    job["spec"]["worker"]["env"] = json::array({testing::delayed_epochs(milliseconds)});
    create(job);
    start_local_run(two_workers());
  }
};

TEST_F(TrainingOnACluster, HasTheHashOfALocalRunAndIsDeletedCompletely) {
  start();
  wait_for("jsonpath={.status.phase}=Running");
  std::future<std::string> log = follow_log("mrpc-worker-0");
  wait_for_checkpoint();
  const std::string columns = kubectl_ok({"get", "tj.tilewright.dev"});
  EXPECT_THAT(columns, HasSubstr("STEP"));
  EXPECT_THAT(columns,
              ::testing::ContainsRegex(fmt::format("mrpc +Running +[0-9]+/{} +loss 0\\.[0-9]+ +"
                                                   "[0-9.]+ +.* 2/2 +0 ",
                                                   kSteps)));
  wait_for_success();
  EXPECT_THAT(log.get(), HasSubstr(fmt::format("{0}/{0}", kSteps)));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0);
  EXPECT_EQ(status["replicas"]["succeeded"], 2);
  EXPECT_EQ(status["progress"]["step"], kSteps);
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());

  const std::string uid = job()["metadata"]["uid"];
  std::string pods;
  for (const char* pod : {"pod/mrpc-worker-0", "pod/mrpc-worker-1"}) {
    pods += get(pod)["metadata"]["uid"].get<std::string>() + " ";
  }
  kubectl_ok({"delete", "tj.tilewright.dev", "mrpc"});
  // The garbage collector deletes the owned resources.
  for (const char* kind : {"pods", "services", "secrets", "networkpolicies"}) {
    const CommandResult gone = kubectl(
        {"wait", kind, "--for=delete", "--selector=tilewright.dev/job-name=mrpc", "--timeout=60s"});
    EXPECT_EQ(gone.exit_code, 0) << kind << ": " << gone.error;
    EXPECT_EQ(kubectl_ok({"get", kind, "--selector=tilewright.dev/job-name=mrpc", "-o", "name"}),
              "");
  }
  EXPECT_EQ(get("pvc/work")["status"]["phase"], "Bound") << "the trained model must remain";
  if (!is_make_cluster()) return;
  // No process with the job's environment and no mount or cgroup of its pods remains on the node.
  const std::string left = fmt::format(
      R"(grep -las TILEWRIGHT_JOB_UID={0} /proc/[0-9]*/environ
         for pod in {1}; do
           grep "$pod" /proc/mounts
           find /sys/fs/cgroup -type d -name "*$pod*"
           [ ! -e "/var/lib/kubelet/pods/$pod/volumes" ] || find "/var/lib/kubelet/pods/$pod/volumes" -type f
         done; true)",
      uid, pods);
  EXPECT_EQ(cluster({"run", "sh", "-c", left}).output, "");
}

TEST_F(TrainingOnACluster, HasTheSameHashAfterAPodIsDeleted) {
  start_for_a_replacement();
  wait_for_checkpoint();
  kubectl_ok({"delete", "pod", "mrpc-worker-1", "--wait=false"});
  expect_pod_replaced();
}

TEST_F(TrainingOnACluster, HasTheSameHashAfterAProcessIsKilled) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the node of `make cluster` is accessible";
  start_for_a_replacement();
  wait_for_checkpoint();
  // From outside the container, because PID 1 cannot be killed from within its PID namespace.
  const std::string uid = job()["metadata"]["uid"];
  const std::string kill = fmt::format(
      R"(for p in /proc/[0-9]*; do
           e=$(tr '\0' '\n' <$p/environ 2>/dev/null) || continue
           case $e in *TILEWRIGHT_WORKER_INDEX=1*) ;; *) continue ;; esac
           case $e in *TILEWRIGHT_JOB_UID={}*) kill -KILL ${{p#/proc/}} && exit 0 ;; esac
         done; exit 1)",
      uid);
  const CommandResult killed = cluster({"run", "sh", "-c", kill});
  ASSERT_EQ(killed.exit_code, 0) << killed.output;
  wait_for_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["program"], 1) << status;
  EXPECT_EQ(status["failures"][0]["signal"], 9);
  EXPECT_EQ(status["failures"][0]["index"], 1);
  EXPECT_EQ(status["failures"][0]["rank"], 1) << "the socket closes before the pod fails";
  expect_state_kept(kLost);
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

TEST_F(TrainingOnACluster, HasTheSameHashAfterOnePodIsEvicted) {
  start_for_a_replacement();
  wait_for_checkpoint();
  const std::string node = evict_pods(",tilewright.dev/worker-index=1");
  kubectl_ok({"uncordon", node});  // for the replacement
  expect_pod_replaced();
}

TEST_F(TrainingOnACluster, HasTheSameHashAfterItsPodsAreEvicted) {
  start();
  wait_for_checkpoint();
  const std::string node = evict_pods();
  wait_for("condition=Blocked");
  kubectl_ok({"uncordon", node});
  wait_for_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["infrastructure"], 2) << status;
  EXPECT_EQ(status["restarts"]["program"], 0);
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

// Draining the only node evicts the job's pods and one of the operator's two replicas. The
// PodDisruptionBudget keeps the other replica, which leads and reports why the job waits.
TEST_F(TrainingOnACluster, HasTheSameHashAfterItsNodeIsDrained) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the node of `make cluster` may be drained";
  start();
  wait_for_checkpoint();
  const std::string node = get("pod/mrpc-worker-0")["spec"]["nodeName"];
  add_cleanup({"uncordon", node});
  const CommandResult drained = kubectl(
      {"drain", node, "--delete-emptydir-data", "--force", "--ignore-daemonsets", "--timeout=20s"});
  EXPECT_NE(drained.exit_code, 0);
  EXPECT_THAT(drained.error, HasSubstr("disruption budget"));
  wait_for("condition=Blocked");
  kubectl_ok({"uncordon", node});
  wait_for_success();
  EXPECT_EQ(job()["status"]["restarts"]["infrastructure"], 2) << job()["status"];
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
  kubectl_ok({"rollout", "status", "deployment/tilewright-controller",
              "--namespace=tilewright-system", "--timeout=60s"});
}

TEST_F(TrainingOnACluster, ContinuesWhileTheOperatorIsReplaced) {
  start();
  wait_for_checkpoint();
  const auto workers = [&] {
    return kubectl_ok({"get", "pods", "--selector=tilewright.dev/job-name=mrpc",
                       "-o=jsonpath={.items[*].metadata.uid}"});
  };
  const auto leader = [&] {
    return kubectl_ok({"get", "lease", "tilewright-controller", "--namespace=tilewright-system",
                       "-o=jsonpath={.spec.holderIdentity}"});
  };
  const std::string before = workers();
  const std::string led = leader();
  // Both replicas at once, without graceful termination.
  kubectl_ok({"delete", "pods", "--namespace=tilewright-system",
              "--selector=app.kubernetes.io/component=controller", "--grace-period=0", "--force"});
  kubectl_ok({"rollout", "status", "deployment/tilewright-controller",
              "--namespace=tilewright-system", "--timeout=60s"});
  EXPECT_EQ(workers(), before);
  wait_for_success();
  EXPECT_NE(leader(), led);
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  EXPECT_EQ(status["progress"]["step"], kSteps) << "progress reported to the new leader";
  EXPECT_THAT(kubectl_ok({"logs", "mrpc-worker-0"}), Not(HasSubstr("resuming from")));
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

TEST_F(TrainingOnACluster, ContinuesWhileTheKubeletIsDown) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the kubelet of `make cluster` can be stopped";
  start();
  wait_for_checkpoint();
  const std::string node =
      "node/" + get("pod/mrpc-worker-0")["spec"]["nodeName"].get<std::string>();
  ASSERT_EQ(cluster({"stop", "kubelet"}).exit_code, 0);
  // The node becomes NotReady, but its pods are kept: they send heartbeats to the rendezvous.
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "Unknown");
  ASSERT_EQ(cluster({"start", "kubelet"}).exit_code, 0);
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  wait_for_success();
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0) << job()["status"];
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

}  // namespace
}  // namespace tilewright
