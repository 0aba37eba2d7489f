// What a job's owner may ask of its life, on real pods: suspension, other numbers of workers,
// deadlines, what stays when it ends, and another job under its name.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>
#include <iomanip>
#include <sstream>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandOutcome;
using ::testing::HasSubstr;
using testing::restricted_pod;

// RFC 3339 in UTC, whole seconds, as Kubernetes writes it.
std::time_t seconds_of(const std::string& timestamp) {
  std::tm parts{};
  std::istringstream(timestamp) >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%SZ");
  return timegm(&parts);
}

class Policies : public testing::TrainingJobTest {
 protected:
  Policies() : TrainingJobTest(testing::Model::kSmall) {}

  static std::string of_job(const std::string& name) {
    return "--selector=tilewright.dev/job-name=" + name;
  }
  void await_gone(const std::string& kind, const std::string& job = "mrpc") const {
    const CommandOutcome gone =
        kubectl({"wait", kind, "--for=delete", of_job(job), "--timeout=60s"});
    EXPECT_EQ(gone.exit_code, 0) << kind << " of " << job << ": " << gone.error;
  }
  std::string pods_of(const std::string& job) const {
    return must({"get", "pods", of_job(job), "-o", "name"});
  }
  void await_training() const { await_line("mrpc-worker-0", "checkpoint-"); }

  json manifest_ = testing::training_job(testing::Model::kSmall);
  json& spec_ = manifest_["spec"];
  // Half a minute of training, with something to resume from after a second or two.
  void train_long() {
    spec_["trainer"].update({{"max_steps", 400}, {"save_steps", 20}, {"logging_steps", 5}});
  }
  void train_forever() {
    spec_["trainer"].update({{"max_steps", 1'000'000}, {"save_steps", 20}, {"logging_steps", 5}});
  }
};

TEST_F(Policies, ASuspendedJobResumesWithTheHashOfUp) {
  train_long();
  spec_["worker"]["replicas"] = 2;
  create(manifest_);
  await_training();
  change({{"spec", {{"runPolicy", {{"suspend", true}}}}}});
  await_reason("Suspended", "Suspended", HasSubstr("spec.runPolicy.suspend is true"));
  await_gone("pods");
  EXPECT_EQ(job()["status"]["phase"], "Suspended");
  change({{"spec", {{"runPolicy", {{"suspend", false}}}}}});
  await_event("Resumed", HasSubstr("the job goes on from its last checkpoint"));
  await_success();
  EXPECT_THAT(must({"logs", "mrpc-worker-0"}), HasSubstr("resuming from"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0) << job()["status"];
  EXPECT_EQ(hash_in_cluster(), hash_under_up(manifest_));
}

TEST_F(Policies, AJobThatIsScaledWhileItTrainsEndsWithTheHashOfUp) {
  train_long();
  spec_["elasticPolicy"] = {{"minReplicas", 1}, {"maxReplicas", 3}};
  create(manifest_);
  await_training();
  for (const char* replicas : {"3", "2"}) {
    must({"scale", "trainjob/mrpc", std::string("--replicas=") + replicas});
    await_line("mrpc-worker-0", std::string(": rank 0 of ") + replicas);
    await(std::string("jsonpath={.status.replicas.ready}=") + replicas);
  }
  await_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  EXPECT_EQ(status["replicas"]["succeeded"], 2) << status;
  EXPECT_EQ(hash_in_cluster(), hash_under_up(manifest_));
}

TEST_F(Policies, ADeadlineEndsATraining) {
  train_forever();
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 10}};
  create(manifest_);
  await_training();
  await_reason("Failed", "DeadlineExceeded",
               HasSubstr("the job ran longer than its activeDeadlineSeconds of 10"));
  await_gone("pods");
}

TEST_F(Policies, ADeadlineIsOnTimeThoughNothingElseHappens) {
  spec_["worker"]["nodeSelector"] = {{"e2e.tilewright.dev/never", "yes"}};
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 10}};
  create(manifest_);
  await_reason("Failed", "DeadlineExceeded", HasSubstr("activeDeadlineSeconds of 10"));
  const json status = job()["status"];
  const auto ran = seconds_of(status["completionTime"]) - seconds_of(status["startTime"]);
  EXPECT_GE(ran, 10);
  EXPECT_LE(ran, 12);
  await_gone("pods");
}

TEST_F(Policies, AFinishedJobGoesWhenItsTimeToLiveIsOver) {
  spec_["runPolicy"] = {{"ttlSecondsAfterFinished", 8}};
  create(manifest_);
  await_success();
  const std::time_t end = seconds_of(job()["status"]["completionTime"]);
  must({"wait", "trainjob/mrpc", "--for=delete", "--timeout=60s"});
  const std::time_t lived = std::time(nullptr) - end;
  EXPECT_GE(lived, 8);
  EXPECT_LE(lived, 18);
  await_gone("pods");
}

TEST_F(Policies, WhatStaysOfAFinishedJobIsItsCleanPodPolicys) {
  const auto create_all = [&](const std::string& prefix) {
    for (const char* policy : {"None", "Running", "All"}) {
      json job = manifest_;
      const std::string name = prefix + (policy[0] == 'N'   ? "none"
                                         : policy[0] == 'R' ? "running"
                                                            : "all");
      job["metadata"]["name"] = name;
      job["spec"]["trainer"]["output"] = "work:" + name;
      job["spec"]["runPolicy"]["cleanPodPolicy"] = policy;
      create(job);
    }
  };
  const auto await_phase = [&](const std::string& prefix, const char* phase) {
    for (const char* policy : {"none", "running", "all"}) {
      wait("trainjob/" + prefix + policy, "{.status.phase}", phase);
    }
  };
  // Pods that have ended by themselves.
  create_all("done-");
  await_phase("done-", "Succeeded");
  await_gone("pods", "done-all");
  await_gone("services", "done-all");
  EXPECT_EQ(pods_of("done-none"), "pod/done-none-worker-0\n");
  EXPECT_EQ(pods_of("done-running"), "pod/done-running-worker-0\n");
  must({"get", "service/done-running"});
  // Pods that would train on.
  train_forever();
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 8}};
  create_all("late-");
  await_phase("late-", "Failed");
  await_gone("pods", "late-all");
  await_gone("services", "late-all");
  await_gone("pods", "late-running");
  must({"get", "service/late-running"});
  EXPECT_EQ(pods_of("late-none"), "pod/late-none-worker-0\n");
}

// Log shippers and meshes put containers beside the worker that never end by themselves.
TEST_F(Policies, AWorkersEndCountsThoughASidecarRunsOn) {
  json sidecar = restricted_pod("side", testing::tools_image(), {"sleep", "600"});
  sidecar = sidecar["spec"]["containers"][0];
  sidecar["name"] = "side";
  spec_["worker"]["podTemplate"] = {{"spec", {{"containers", {sidecar}}}}};
  spec_["worker"]["restartPolicy"] = "ExitCode";
  json failing = manifest_;
  failing["metadata"]["name"] = "failing";
  failing["spec"]["trainer"]["model"] = "work:no-such-model";
  create(failing);
  create(manifest_);
  await_success();
  await_gone("pods");
  wait("trainjob/failing", R"({.status.conditions[?(@.type=="Failed")].reason})",
       "PermanentExitCode");
  const json status = get("trainjob/failing")["status"];
  EXPECT_EQ(status["failures"][0]["exitCode"], 11) << status;
  EXPECT_THAT(status["summary"]["message"].get<std::string>(), HasSubstr("no-such-model"));
  await_gone("pods", "failing");
}

TEST_F(Policies, AJobThatIsMadeAgainUnderItsNameStartsAfresh) {
  train_forever();
  const json first = create(manifest_);
  await_training();
  must({"delete", "trainjob", "mrpc", "--wait=false"});
  spec_["trainer"].update({{"output", "work:again"}, {"max_steps", 2}});
  const json second = create(manifest_);
  await_success();
  const json job = this->job();
  EXPECT_NE(first["metadata"]["uid"], job["metadata"]["uid"]);
  EXPECT_EQ(second["metadata"]["uid"], job["metadata"]["uid"]);
  EXPECT_EQ(job["status"]["restarts"]["total"], 0) << job["status"];
  EXPECT_EQ(get("pod/mrpc-worker-0")["metadata"]["ownerReferences"][0]["uid"],
            second["metadata"]["uid"]);
}

}  // namespace
}  // namespace tilewright
