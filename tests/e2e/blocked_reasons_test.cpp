// Tests of blocked reasons: the job's condition and an event state each reason in one sentence, and
// the job resumes when the reason is resolved.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::CommandResult;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::restricted_pod;

// Parses CPU quantities as Kubernetes formats them: "2", "1930m".
std::int64_t millicpus(const std::string& amount) {
  return amount.back() == 'm' ? std::stoll(amount) : std::stoll(amount) * 1000;
}

class BlockedReasons : public testing::TrainingJobTest {
 protected:
  BlockedReasons() : TrainingJobTest(testing::Model::kSmall) {}

  json manifest_ = testing::training_job(testing::Model::kSmall);
  json& trainer_ = manifest_["spec"]["trainer"];
  json& worker_ = manifest_["spec"]["worker"];
  // A node that can run the job: the one with the claim's volume.
  std::string node() const {
    const std::string volume = get("pvc/work")["spec"]["volumeName"];
    const json terms = get("pv/" + volume)["spec"]["nodeAffinity"]["required"];
    if (terms.is_object()) {
      return terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0];
    }
    return get("nodes")["items"][0]["metadata"]["name"];
  }
};

TEST_F(BlockedReasons, AMissingImageIsReportedAndCanBeChanged) {
  worker_["image"] = testing::worker_image() + "-absent";
  create(manifest_);
  wait_for_blocked("ImageNotAvailable",
                   fmt::format("the image {}-absent of mrpc-worker-0 cannot be pulled; the kubelet "
                               "keeps retrying",
                               testing::worker_image()));
  patch_job({{"spec", {{"worker", {{"image", testing::worker_image()}}}}}});
  wait_for_success();
}

TEST_F(BlockedReasons, AJobStartsWhenItsImageAppears) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the node of `make cluster` can load images";
  const std::string late = testing::worker_image() + "-late";
  const auto images = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"run", "ctr", "--namespace=k8s.io", "images"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CommandResult outcome = cluster(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  worker_["image"] = late;
  create(manifest_);
  wait_for_blocked("ImageNotAvailable", HasSubstr(late));
  images({"tag", "docker.io/library/" + testing::worker_image(), "docker.io/library/" + late});
  wait_for_success();
  images({"rm", "docker.io/library/" + late});
}

TEST_F(BlockedReasons, AJobStartsWhenItsClaimAppears) {
  manifest_["spec"]["volumes"].push_back(
      {{"name", "late"}, {"persistentVolumeClaim", {{"claimName", "late"}}}});
  trainer_["output"] = "late:out";
  create(manifest_);
  wait_for_blocked(
      "ClaimNotFound",
      "PersistentVolumeClaim late does not exist in this namespace; workers start when it is "
      "created");
  create(testing::claim("late"));
  wait_for_success();
}

TEST_F(BlockedReasons, AJobStartsWhenAnotherPodReleasesItsClaim) {
  if (!is_make_cluster()) GTEST_SKIP() << "only the node of `make cluster` can add volumes";
  // The StorageClass has no other volume with ReadWriteOncePod, so the claim binds to this one.
  json volume = get("pv/" + get("pvc/work")["spec"]["volumeName"].get<std::string>());
  const std::string path = "/var/lib/volumes/" + namespace_name();
  ASSERT_EQ(cluster({"run", "mkdir", "-p", path}).exit_code, 0);
  create({{"apiVersion", "v1"},
          {"kind", "PersistentVolume"},
          {"metadata", {{"name", namespace_name()}}},
          {"spec",
           {{"capacity", volume["spec"]["capacity"]},
            {"accessModes", {"ReadWriteOncePod"}},
            {"persistentVolumeReclaimPolicy", "Retain"},
            {"storageClassName", volume["spec"]["storageClassName"]},
            {"local", {{"path", path}}},
            {"nodeAffinity", volume["spec"]["nodeAffinity"]}}}});
  add_cleanup({"delete", "pv", namespace_name(), "--wait=false"});
  create(testing::claim("single", "ReadWriteOncePod"));
  create(testing::with_claim(restricted_pod("holder", testing::tools_image(), {"sleep", "600"}),
                             "single"));
  wait("pod/holder", "{.status.phase}", "Running");

  manifest_["spec"]["volumes"].push_back(
      {{"name", "single"}, {"persistentVolumeClaim", {{"claimName", "single"}}}});
  trainer_["output"] = "single:out";
  create(manifest_);
  wait_for_blocked("ClaimInUse",
                   HasSubstr("ReadWriteOncePod; the worker is scheduled when that pod is gone"));
  kubectl_ok({"delete", "pod", "holder", "--grace-period=1"});
  wait_for_success();
}

TEST_F(BlockedReasons, AJobStartsWhenAnExceededQuotaIsRemoved) {
  create({{"apiVersion", "v1"},
          {"kind", "ResourceQuota"},
          {"metadata", {{"name", "team"}}},
          {"spec", {{"hard", {{"requests.cpu", "100m"}}}}}});
  wait("resourcequota/team", R"({.status.hard.requests\.cpu})", "100m");
  create(manifest_);
  wait_for_blocked("QuotaExceeded",
                   AllOf(HasSubstr("the namespace's quota is exceeded"),
                         ContainsRegex("exceeded quota: team, requested: requests.cpu=300m, used: "
                                       "requests.cpu=[0-9]+m?, limited: requests.cpu=100m"),
                         HasSubstr("; the operator keeps retrying")));
  kubectl_ok({"delete", "resourcequota", "team"});
  wait_for_success();
}

TEST_F(BlockedReasons, AnOomKilledWorkerWaitsForALargerMemoryLimit) {
  // 41 MB of sentence pairs, which the worker reads before it estimates the training's memory.
  run_with_claim(
      "mkdir /work/much && cp /work/data/* /work/much/ && cd /work/much && "
      "for i in $(seq 600); do tail -n +2 /work/data/train.tsv; done >>train.tsv");
  trainer_["data"] = "work:much";
  worker_["sharedMemory"] = "16Mi";
  worker_["resources"]["memory"] = "128Mi";
  create(manifest_);
  wait_for_blocked(
      "OutOfMemory",
      AllOf(ContainsRegex("^worker 0 \\(mrpc-worker-0 on .*\\) was OOM-killed \\(memory "
                          "limit 128Mi\\), and no step was completed since its previous OOM kill"),
            HasSubstr("raise spec.worker.resources.memory")));
  wait_for_event("WorkerFailed", HasSubstr("was OOM-killed (memory limit 128Mi)"));
  const json failures = job()["status"]["failures"];
  ASSERT_EQ(failures.size(), 2U) << failures;
  for (const json& failure : failures) {
    EXPECT_EQ(failure["cause"], "OutOfMemory");
    EXPECT_EQ(failure["reason"], "OOMKilled");
  }
  patch_job({{"spec", {{"worker", {{"resources", {{"memory", "1Gi"}}}}}}}});
  wait_for_success();
  EXPECT_EQ(job()["status"]["restarts"]["program"], 0);
}

TEST_F(BlockedReasons, AJobStartsWhenANodeGetsItsLabels) {
  const std::string label = "e2e.tilewright.dev/" + namespace_name();
  worker_["nodeSelector"] = {{label, "yes"}};
  create(manifest_);
  wait_for_blocked("NoMatchingNode",
                   AllOf(ContainsRegex("^0/[0-9]+ nodes match spec.worker.nodeSelector"),
                         HasSubstr(fmt::format("({}=yes)", label)),
                         HasSubstr("; workers start when a node has these labels")));
  add_cleanup({"label", "node", node(), label + "-"});
  kubectl_ok({"label", "node", node(), label + "=yes"});
  wait_for_success();
}

TEST_F(BlockedReasons, AJobStartsWhenAnotherPodFreesItsCpus) {
  // Each request fits on the node next to the running pods; both together do not.
  const json there = get("node/" + node())["status"]["allocatable"];
  const std::int64_t cpus = millicpus(there["cpu"]);
  json holder = restricted_pod("holder", testing::tools_image(), {"sleep", "600"});
  for (const char* amounts : {"requests", "limits"}) {
    holder["spec"]["containers"][0]["resources"][amounts]["cpu"] = fmt::format("{}m", cpus / 2);
  }
  holder["spec"]["nodeName"] = node();
  create(holder);
  wait("pod/holder", "{.status.phase}", "Running");
  worker_["nodeSelector"] = {{"kubernetes.io/hostname", node()}};
  worker_["resources"]["cpu"] = fmt::format("{}m", cpus / 2 + 100);
  create(manifest_);
  wait_for_blocked("Unschedulable",
                   AllOf(HasSubstr("no node can run mrpc-worker-0"), HasSubstr("Insufficient cpu"),
                         HasSubstr("; the scheduler keeps retrying")));
  kubectl_ok({"delete", "pod", "holder", "--grace-period=1"});
  wait_for_success();
}

TEST_F(BlockedReasons, AWorkerLargerThanAnyNodeIsReportedAndCanBeResized) {
  worker_["resources"]["cpu"] = "1000";
  const auto says = AllOf(HasSubstr("a worker requests cpu 1000, memory 1Gi"),
                          HasSubstr("have at most cpu"), HasSubstr("lower spec.worker.resources"));
  std::ofstream(folder() / "job.yaml") << manifest_.dump();
  const CommandResult before =
      tilewright({"validate", "--cluster", "--namespace=" + namespace_name(), "job.yaml"});
  EXPECT_NE(before.exit_code, 0);
  EXPECT_THAT(before.output, says);
  create(manifest_);
  wait_for_blocked("LargerThanAnyNode", says);
  patch_job({{"spec", {{"worker", {{"resources", {{"cpu", "300m"}}}}}}}});
  wait_for_success();
}

TEST_F(BlockedReasons, APermanentExitCodeFailsTheJob) {
  trainer_["model"] = "work:nothing";
  worker_["restartPolicy"] = "ExitCode";
  create(manifest_);
  wait_for_condition("Failed", "PermanentExitCode",
                     AllOf(ContainsRegex("^worker 0 \\(mrpc-worker-0 on .*\\) exited with code 11"),
                           HasSubstr("nothing: no such directory"),
                           HasSubstr("; restartPolicy ExitCode does not retry codes below 128")));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  ASSERT_EQ(status["failures"].size(), 1U) << status;
  EXPECT_EQ(status["failures"][0]["exitCode"], 11);
}

TEST_F(BlockedReasons, ACrashLoopFailsTheJobAtItsRestartLimit) {
  trainer_["model"] = "work:nothing";
  manifest_["spec"]["elasticPolicy"]["maxRestarts"] = 2;
  create(manifest_);
  wait_for_event("WorkerFailed",
                 AllOf(HasSubstr("exited with code 11"), HasSubstr("nothing: no such directory")));
  wait_for_condition(
      "Failed", "BackoffLimitExceeded",
      AllOf(HasSubstr("exited with code 11"), HasSubstr("nothing: no such directory"),
            HasSubstr(", and 2 of 2 restarts are used")));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["program"], 2) << status;
  EXPECT_EQ(status["failures"].size(), 3U) << status;
}

TEST_F(BlockedReasons, ACrashLoopEndsWhenItsCauseIsFixed) {
  trainer_["model"] = "work:late";
  manifest_["spec"]["elasticPolicy"]["maxRestarts"] = 20;
  create(manifest_);
  wait_for_blocked("BackOff", HasSubstr("late: no such directory"));
  run_with_claim("mv /work/model /work/late");
  wait_for_success();
  const json status = job()["status"];
  EXPECT_GE(status["restarts"]["program"], 2) << status;
}

}  // namespace
}  // namespace tilewright
