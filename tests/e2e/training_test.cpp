// Two real pods train the real MiniLM, whatever happens to them, and end with the hash that
// `tilewright up` gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandOutcome;
using ::testing::HasSubstr;
using ::testing::Not;

// 40 steps of 32 sentence pairs, a checkpoint every eight.
json two_workers() {
  json job = testing::training_job(testing::Model::kMiniLm);
  json& spec = job["spec"];
  spec["elasticPolicy"] = {{"minReplicas", 1}, {"maxReplicas", 2}, {"maxRestarts", 3}};
  spec["worker"]["replicas"] = 2;
  spec["trainer"].update({{"max_steps", 40}, {"save_steps", 8}, {"logging_steps", 2}});
  return job;
}

class TrainingOnACluster : public testing::TrainingJobTest {
 protected:
  TrainingOnACluster() : TrainingJobTest(testing::Model::kMiniLm) {}
  void start() const { create(two_workers()); }
  // What `tilewright up` gives on this machine.
  std::string hash_under_up() const { return TrainingJobTest::hash_under_up(two_workers()); }
};

TEST_F(TrainingOnACluster, EndsWithTheHashOfUpAndLeavesNothingWhenDeleted) {
  start();
  await("jsonpath={.status.phase}=Running");
  // As people follow it.
  std::string followed;
  std::thread follower([&] { followed = must({"logs", "-f", "mrpc-worker-0"}); });
  await_checkpoint();
  const std::string columns = must({"get", "trainjobs"});
  EXPECT_THAT(columns, HasSubstr("PROGRESS"));
  EXPECT_THAT(columns, ::testing::ContainsRegex("mrpc +Running +[0-9]+/40 +loss 0\\.[0-9]+ +"
                                                "[0-9.]+/s +.* 2/2 +0 "));
  await_success();
  follower.join();
  EXPECT_THAT(followed, HasSubstr("40/40"));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0);
  EXPECT_EQ(status["replicas"]["succeeded"], 2);
  EXPECT_EQ(status["progress"]["step"], 40);
  EXPECT_EQ(hash_in_cluster(), hash_under_up());

  const std::string uid = job()["metadata"]["uid"];
  std::string pods;
  for (const char* pod : {"pod/mrpc-worker-0", "pod/mrpc-worker-1"}) {
    pods += get(pod)["metadata"]["uid"].get<std::string>() + " ";
  }
  must({"delete", "trainjob", "mrpc"});
  // The garbage collector takes what belonged to it.
  for (const char* kind : {"pods", "services", "secrets", "networkpolicies"}) {
    const CommandOutcome gone = kubectl(
        {"wait", kind, "--for=delete", "--selector=tilewright.dev/job-name=mrpc", "--timeout=60s"});
    EXPECT_EQ(gone.exit_code, 0) << kind << ": " << gone.error;
    EXPECT_EQ(must({"get", kind, "--selector=tilewright.dev/job-name=mrpc", "-o", "name"}), "");
  }
  EXPECT_EQ(get("pvc/work")["status"]["phase"], "Bound") << "what was trained stays";
  if (!is_own_cluster()) return;
  // On the node: a process with the job's environment, a mount or a control group of its pods.
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

TEST_F(TrainingOnACluster, EndsTheSameWhenAPodIsDeleted) {
  start();
  await_checkpoint();
  must({"delete", "pod", "mrpc-worker-1", "--wait=false"});
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["infrastructure"], 1) << status;
  EXPECT_EQ(status["restarts"]["program"], 0);
  EXPECT_EQ(status["failures"][0]["pod"], "mrpc-worker-1");
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, EndsTheSameWhenAProcessIsKilled) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s node can be entered";
  start();
  await_checkpoint();
  // From outside its container: no process may kill the first one of its own PID namespace.
  const std::string uid = job()["metadata"]["uid"];
  const std::string kill = fmt::format(
      R"(for p in /proc/[0-9]*; do
           e=$(tr '\0' '\n' <$p/environ 2>/dev/null) || continue
           case $e in *TILEWRIGHT_WORKER_INDEX=1*) ;; *) continue ;; esac
           case $e in *TILEWRIGHT_JOB_UID={}*) kill -KILL ${{p#/proc/}} && exit 0 ;; esac
         done; exit 1)",
      uid);
  const CommandOutcome killed = cluster({"run", "sh", "-c", kill});
  ASSERT_EQ(killed.exit_code, 0) << killed.output;
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["program"], 1) << status;
  EXPECT_EQ(status["failures"][0]["signal"], 9);
  EXPECT_EQ(status["failures"][0]["index"], 1);
  EXPECT_EQ(status["failures"][0]["rank"], 1) << "its socket closed long before its pod had failed";
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, EndsTheSameWhenItsPodsAreEvicted) {
  start();
  await_checkpoint();
  const std::string node = get("pod/mrpc-worker-0")["spec"]["nodeName"];
  // As `kubectl drain` does it; nothing else on the node is touched.
  const std::string uid = job()["metadata"]["uid"];
  must({"drain", node, "--pod-selector=tilewright.dev/job-uid=" + uid, "--delete-emptydir-data",
        "--force", "--timeout=100s"});
  await("condition=Blocked");
  must({"uncordon", node});
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["infrastructure"], 2) << status;
  EXPECT_EQ(status["restarts"]["program"], 0);
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

// A drain of the only node takes the job's pods and one of the operator's two replicas; its
// disruption budget keeps the other, so that somebody leads, and says what the job waits for.
TEST_F(TrainingOnACluster, EndsTheSameWhenItsOperatorIsDrainedWithIt) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s node is drained of all";
  start();
  await_checkpoint();
  const std::string node = get("pod/mrpc-worker-0")["spec"]["nodeName"];
  at_the_end({"uncordon", node});
  const CommandOutcome drained = kubectl(
      {"drain", node, "--delete-emptydir-data", "--force", "--ignore-daemonsets", "--timeout=20s"});
  EXPECT_NE(drained.exit_code, 0);
  EXPECT_THAT(drained.error, HasSubstr("disruption budget"));
  await("condition=Blocked");
  must({"uncordon", node});
  await_success();
  EXPECT_EQ(job()["status"]["restarts"]["infrastructure"], 2) << job()["status"];
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
  must({"rollout", "status", "deployment/tilewright-controller", "--namespace=tilewright-system",
        "--timeout=60s"});
}

TEST_F(TrainingOnACluster, GoesOnWhileItsOperatorIsReplaced) {
  start();
  await_checkpoint();
  const auto workers = [&] {
    return must({"get", "pods", "--selector=tilewright.dev/job-name=mrpc",
                 "-o=jsonpath={.items[*].metadata.uid}"});
  };
  const auto leader = [&] {
    return must({"get", "lease", "tilewright-controller", "--namespace=tilewright-system",
                 "-o=jsonpath={.spec.holderIdentity}"});
  };
  const std::string before = workers();
  const std::string led = leader();
  // Both replicas at once, and without their goodbye.
  must({"delete", "pods", "--namespace=tilewright-system",
        "--selector=app.kubernetes.io/component=controller", "--grace-period=0", "--force"});
  must({"rollout", "status", "deployment/tilewright-controller", "--namespace=tilewright-system",
        "--timeout=60s"});
  EXPECT_EQ(workers(), before);
  await_success();
  EXPECT_NE(leader(), led);
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  EXPECT_EQ(status["progress"]["step"], 40) << "told to the new leader";
  EXPECT_THAT(must({"logs", "mrpc-worker-0"}), Not(HasSubstr("resuming from")));
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

TEST_F(TrainingOnACluster, GoesOnWhileItsKubeletIsAway) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s kubelet can be stopped";
  start();
  await_checkpoint();
  const std::string node =
      "node/" + get("pod/mrpc-worker-0")["spec"]["nodeName"].get<std::string>();
  ASSERT_EQ(cluster({"stop", "kubelet"}).exit_code, 0);
  // The node is given up, its pods are not: they are heard at the rendezvous.
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "Unknown");
  ASSERT_EQ(cluster({"start", "kubelet"}).exit_code, 0);
  wait(node, R"({.status.conditions[?(@.type=="Ready")].status})", "True");
  await_success();
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0) << job()["status"];
  EXPECT_EQ(hash_in_cluster(), hash_under_up());
}

}  // namespace
}  // namespace tilewright
