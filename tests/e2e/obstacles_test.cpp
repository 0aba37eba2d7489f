// What keeps a job from running: each obstacle is said in one sentence by the job's condition and
// by an event, and the job goes on when the obstacle goes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::CommandOutcome;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::restricted_pod;

// Amounts as Kubernetes writes those of nodes: "2", "1930m".
std::int64_t millicpus(const std::string& amount) {
  return amount.back() == 'm' ? std::stoll(amount) : std::stoll(amount) * 1000;
}

class Obstacles : public testing::TrainingJobTest {
 protected:
  Obstacles() : TrainingJobTest(testing::Model::kSmall) {}

  json manifest_ = testing::training_job(testing::Model::kSmall);
  json& trainer_ = manifest_["spec"]["trainer"];
  json& worker_ = manifest_["spec"]["worker"];
  // One that can take the job: where the claim's volume is.
  std::string node() const {
    const std::string volume = get("pvc/work")["spec"]["volumeName"];
    const json terms = get("pv/" + volume)["spec"]["nodeAffinity"]["required"];
    if (terms.is_object()) {
      return terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0];
    }
    return get("nodes")["items"][0]["metadata"]["name"];
  }
};

TEST_F(Obstacles, AnImageThatIsNotThereIsToldAndCanBeChanged) {
  worker_["image"] = testing::worker_image() + "-absent";
  create(manifest_);
  await_blocked("ImageNotAvailable",
                fmt::format("the image {}-absent of mrpc-worker-0 cannot be had; the kubelet tries "
                            "again until it can",
                            testing::worker_image()));
  change({{"spec", {{"worker", {{"image", testing::worker_image()}}}}}});
  await_success();
}

TEST_F(Obstacles, AnImageThatComesLateIsWaitedFor) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s node can be given images";
  const std::string late = testing::worker_image() + "-late";
  const auto images = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"run", "ctr", "--namespace=k8s.io", "images"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CommandOutcome outcome = cluster(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  worker_["image"] = late;
  create(manifest_);
  await_blocked("ImageNotAvailable", HasSubstr(late));
  images({"tag", "docker.io/library/" + testing::worker_image(), "docker.io/library/" + late});
  await_success();
  images({"rm", "docker.io/library/" + late});
}

TEST_F(Obstacles, AClaimThatIsNotThereIsWaitedFor) {
  manifest_["spec"]["volumes"].push_back(
      {{"name", "late"}, {"persistentVolumeClaim", {{"claimName", "late"}}}});
  trainer_["output"] = "late:out";
  create(manifest_);
  await_blocked(
      "ClaimNotFound",
      "there is no PersistentVolumeClaim late in this namespace; workers start as soon as "
      "there is");
  create(testing::claim("late"));
  await_success();
}

TEST_F(Obstacles, AClaimThatAnotherPodHoldsIsWaitedFor) {
  if (!is_own_cluster()) GTEST_SKIP() << "only `make cluster`'s node can be given volumes";
  // For one pod at a time. None of the class's volumes is, so that it gets this one.
  json volume = get("pv/" + get("pvc/work")["spec"]["volumeName"].get<std::string>());
  const std::string path = "/var/lib/volumes/" + name_space();
  ASSERT_EQ(cluster({"run", "mkdir", "-p", path}).exit_code, 0);
  create({{"apiVersion", "v1"},
          {"kind", "PersistentVolume"},
          {"metadata", {{"name", name_space()}}},
          {"spec",
           {{"capacity", volume["spec"]["capacity"]},
            {"accessModes", {"ReadWriteOncePod"}},
            {"persistentVolumeReclaimPolicy", "Retain"},
            {"storageClassName", volume["spec"]["storageClassName"]},
            {"local", {{"path", path}}},
            {"nodeAffinity", volume["spec"]["nodeAffinity"]}}}});
  at_the_end({"delete", "pv", name_space(), "--wait=false"});
  create(testing::claim("single", "ReadWriteOncePod"));
  create(testing::with_claim(restricted_pod("holder", testing::tools_image(), {"sleep", "600"}),
                             "single"));
  wait("pod/holder", "{.status.phase}", "Running");

  manifest_["spec"]["volumes"].push_back(
      {{"name", "single"}, {"persistentVolumeClaim", {{"claimName", "single"}}}});
  trainer_["output"] = "single:out";
  create(manifest_);
  await_blocked("ClaimInUse", HasSubstr("and another pod uses it; it is placed as soon as"));
  must({"delete", "pod", "holder", "--grace-period=1"});
  await_success();
}

TEST_F(Obstacles, AQuotaThatIsUsedUpIsToldAndItsLiftingNoticed) {
  create({{"apiVersion", "v1"},
          {"kind", "ResourceQuota"},
          {"metadata", {{"name", "team"}}},
          {"spec", {{"hard", {{"requests.cpu", "100m"}}}}}});
  wait("resourcequota/team", R"({.status.hard.requests\.cpu})", "100m");
  create(manifest_);
  await_blocked("QuotaExceeded",
                AllOf(HasSubstr("the namespace's quota is used up"),
                      ContainsRegex("exceeded quota: team, requested: requests.cpu=300m, used: "
                                    "requests.cpu=[0-9]+m?, limited: requests.cpu=100m"),
                      HasSubstr("; it is tried again until it is allowed")));
  must({"delete", "resourcequota", "team"});
  await_success();
}

TEST_F(Obstacles, AWorkerKilledForItsMemoryWaitsForMore) {
  // 41 MB of sentence pairs: read before the worker reckons what the training will need.
  in_claim(
      "mkdir /work/much && cp /work/data/* /work/much/ && cd /work/much && "
      "for i in $(seq 600); do tail -n +2 /work/data/train.tsv; done >>train.tsv");
  trainer_["data"] = "work:much";
  worker_["sharedMemory"] = "16Mi";
  worker_["resources"]["memory"] = "128Mi";
  create(manifest_);
  await_blocked("OutOfMemory",
                AllOf(ContainsRegex("^worker 0 \\(mrpc-worker-0 on .*\\) was killed for using more "
                                    "than its 128Mi of memory again without progress"),
                      HasSubstr("raise spec.worker.resources.memory")));
  await_event("WorkerFailed", HasSubstr("using more than its 128Mi of memory"));
  const json failures = job()["status"]["failures"];
  ASSERT_EQ(failures.size(), 2U) << failures;
  for (const json& failure : failures) {
    EXPECT_EQ(failure["cause"], "OutOfMemory");
    EXPECT_EQ(failure["reason"], "OOMKilled");
  }
  change({{"spec", {{"worker", {{"resources", {{"memory", "1Gi"}}}}}}}});
  await_success();
  EXPECT_EQ(job()["status"]["restarts"]["program"], 0);
}

TEST_F(Obstacles, ANodeWithTheLabelsIsWaitedFor) {
  const std::string label = "e2e.tilewright.dev/" + name_space();
  worker_["nodeSelector"] = {{label, "yes"}};
  create(manifest_);
  await_blocked("NoSuchNode", AllOf(ContainsRegex("^none of [0-9]+ nodes has the labels"),
                                    HasSubstr(fmt::format("({}=yes)", label)),
                                    HasSubstr("; workers start as soon as one has")));
  at_the_end({"label", "node", node(), label + "-"});
  must({"label", "node", node(), label + "=yes"});
  await_success();
}

TEST_F(Obstacles, RoomThatAnotherPodTakesIsWaitedFor) {
  // Either fits beside what else runs there, both together nowhere.
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
  await_blocked("Unschedulable",
                AllOf(HasSubstr("no node can take mrpc-worker-0"), HasSubstr("Insufficient cpu"),
                      HasSubstr("; it is placed as soon as one can")));
  must({"delete", "pod", "holder", "--grace-period=1"});
  await_success();
}

TEST_F(Obstacles, AWorkerLargerThanAnyNodeIsToldBeforeAndCanBeMadeSmaller) {
  worker_["resources"]["cpu"] = "1000";
  const auto says = AllOf(HasSubstr("a worker asks for cpu 1000, memory 1Gi"),
                          HasSubstr("has at most cpu"), HasSubstr("lower spec.worker.resources"));
  std::ofstream(folder() / "job.yaml") << manifest_.dump();
  const CommandOutcome before =
      tilewright({"validate", "--cluster", "--namespace=" + name_space(), "job.yaml"});
  EXPECT_NE(before.exit_code, 0);
  EXPECT_THAT(before.output, says);
  create(manifest_);
  await_blocked("LargerThanAnyNode", says);
  change({{"spec", {{"worker", {{"resources", {{"cpu", "300m"}}}}}}}});
  await_success();
}

TEST_F(Obstacles, ACommandThatFailsForGoodEndsTheJob) {
  trainer_["model"] = "work:nothing";
  worker_["restartPolicy"] = "ExitCode";
  create(manifest_);
  await_reason("Failed", "PermanentExitCode",
               AllOf(ContainsRegex("^worker 0 \\(mrpc-worker-0 on .*\\) ended with exit code 11"),
                     HasSubstr("nothing: no such folder"),
                     HasSubstr(", which restartPolicy ExitCode takes for permanent")));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  ASSERT_EQ(status["failures"].size(), 1U) << status;
  EXPECT_EQ(status["failures"][0]["exitCode"], 11);
}

TEST_F(Obstacles, ACrashLoopEndsWhenItsRestartsAreUsedUp) {
  trainer_["model"] = "work:nothing";
  manifest_["spec"]["elasticPolicy"]["maxRestarts"] = 2;
  create(manifest_);
  await_event("WorkerFailed",
              AllOf(HasSubstr("ended with exit code 11"), HasSubstr("nothing: no such folder")));
  await_reason("Failed", "BackoffLimitExceeded",
               AllOf(HasSubstr("ended with exit code 11"), HasSubstr("nothing: no such folder"),
                     HasSubstr(", and 2 of 2 restarts are used up")));
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["program"], 2) << status;
  EXPECT_EQ(status["failures"].size(), 3U) << status;
}

TEST_F(Obstacles, ACrashLoopIsLeftWhenItsCauseGoes) {
  trainer_["model"] = "work:late";
  manifest_["spec"]["elasticPolicy"]["maxRestarts"] = 20;
  create(manifest_);
  await_blocked("BackOff", HasSubstr("late: no such folder"));
  in_claim("mv /work/model /work/late");
  await_success();
  const json status = job()["status"];
  EXPECT_GE(status["restarts"]["program"], 2) << status;
}

}  // namespace
}  // namespace tilewright
