// Tests runPolicy and lifecycle changes with pods: suspension, scaling, deadlines, cleanPodPolicy,
// TTL, and a recreated job of the same name.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>
#include <iomanip>
#include <sstream>

#include "tests/e2e/training_job.h"

namespace tilewright {
namespace {

using nlohmann::json;
using testing::CommandResult;
using ::testing::HasSubstr;
using testing::restricted_pod;

// Parses RFC 3339 in UTC with whole seconds, the format of Kubernetes.
std::time_t seconds_of(const std::string& timestamp) {
  std::tm parts{};
  std::istringstream(timestamp) >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%SZ");
  return timegm(&parts);
}

class Policies : public testing::TrainingJobTest {
 protected:
  Policies() : TrainingJobTest(testing::Model::kSmall) {}

  static std::string job_selector(const std::string& name) {
    return "--selector=tilewright.dev/job-name=" + name;
  }
  void wait_for_deletion(const std::string& kind, const std::string& job = "mrpc") const {
    const CommandResult gone =
        kubectl({"wait", kind, "--for=delete", job_selector(job), "--timeout=60s"});
    EXPECT_EQ(gone.exit_code, 0) << kind << " of " << job << ": " << gone.error;
  }
  std::string pods_of(const std::string& job) const {
    return kubectl_ok({"get", "pods", job_selector(job), "-o", "name"});
  }
  void wait_for_training() const { wait_for_log_line("mrpc-worker-0", "checkpoint-"); }

  json manifest_ = testing::training_job(testing::Model::kSmall);
  json& spec_ = manifest_["spec"];
  // The first checkpoint is written after 20 steps.
  void train_long() {
    spec_["trainer"].update({{"max_steps", 400}, {"save_steps", 20}, {"logging_steps", 5}});
  }
  // The local run has no delays.
  void start_with_delays(const std::vector<int>& milliseconds) {
    json delayed = manifest_;
    delayed["spec"]["worker"]["env"] = json::array({testing::delayed_epochs(milliseconds)});
    create(delayed);
    start_local_run(manifest_);
  }
  void train_forever() {
    spec_["trainer"].update({{"max_steps", 1'000'000}, {"save_steps", 20}, {"logging_steps", 5}});
  }
};

// Its only checkpoint is the one that the workers write when the suspension stops them.
TEST_F(Policies, AResumedJobHasTheHashOfALocalRun) {
  train_long();
  spec_["trainer"]["save_strategy"] = "no";
  spec_["worker"]["replicas"] = 2;
  start_with_delays({100});
  wait_for_log_line("mrpc-worker-0", "step 20/400");
  patch_job({{"spec", {{"runPolicy", {{"suspend", true}}}}}});
  wait_for_condition("Suspended", "Suspended", HasSubstr("spec.runPolicy.suspend is true"));
  wait_for_deletion("pods");
  EXPECT_EQ(job()["status"]["phase"], "Suspended");
  patch_job({{"spec", {{"runPolicy", {{"suspend", false}}}}}});
  wait_for_event("Resumed", HasSubstr("the job resumes from its last checkpoint"));
  wait_for_success();
  EXPECT_THAT(kubectl_ok({"logs", "mrpc-worker-0"}), HasSubstr("resuming from"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0) << job()["status"];
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

TEST_F(Policies, AScaledJobHasTheHashOfALocalRun) {
  train_long();
  spec_["elasticPolicy"] = {{"minReplicas", 1}, {"maxReplicas", 3}};
  // In epochs 1 and 2 pods start, which may take a minute. The last epoch is 3 or, if the new
  // workers join one after the other, 4.
  start_with_delays({250, 250, 50, 50});
  wait_for_training();
  for (const char* replicas : {"3", "2"}) {
    kubectl_ok({"scale", "tj.tilewright.dev/mrpc", std::string("--replicas=") + replicas});
    wait_for_log_line("mrpc-worker-0", std::string(": rank 0 of ") + replicas);
    wait_for(std::string("jsonpath={.status.replicas.ready}=") + replicas);
  }
  wait_for_success();
  const json status = job()["status"];
  EXPECT_EQ(status["restarts"]["total"], 0) << status;
  EXPECT_EQ(status["replicas"]["succeeded"], 2) << status;
  EXPECT_EQ(hash_of_cluster_run(), hash_of_local_run());
}

TEST_F(Policies, ADeadlineFailsARunningJob) {
  train_forever();
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 40}};
  create(manifest_);
  wait_for_training();
  wait_for_condition(
      "Failed", "DeadlineExceeded",
      HasSubstr("the job was active for longer than its activeDeadlineSeconds of 40"));
  wait_for_deletion("pods");
}

TEST_F(Policies, ADeadlineFiresOnTimeWithoutOtherEvents) {
  spec_["worker"]["nodeSelector"] = {{"e2e.tilewright.dev/never", "yes"}};
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 10}};
  create(manifest_);
  wait_for_condition("Failed", "DeadlineExceeded", HasSubstr("activeDeadlineSeconds of 10"));
  const json status = job()["status"];
  const auto ran = seconds_of(status["completionTime"]) - seconds_of(status["startTime"]);
  EXPECT_GE(ran, 10);
  EXPECT_LE(ran, 60);
  wait_for_deletion("pods");
}

TEST_F(Policies, AFinishedJobIsDeletedAfterItsTtl) {
  spec_["runPolicy"] = {{"ttlSecondsAfterFinished", 30}};
  create(manifest_);
  wait_for_success();
  const std::time_t end = seconds_of(job()["status"]["completionTime"]);
  kubectl_ok({"wait", "tj.tilewright.dev/mrpc", "--for=delete", "--timeout=60s"});
  const std::time_t lived = std::time(nullptr) - end;
  EXPECT_GE(lived, 30);
  EXPECT_LE(lived, 90);
  wait_for_deletion("pods");
}

TEST_F(Policies, CleanPodPolicyDecidesWhatAFinishedJobKeeps) {
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
  const auto wait_for_phase = [&](const std::string& prefix, const char* phase) {
    for (const char* policy : {"none", "running", "all"}) {
      wait("tj.tilewright.dev/" + prefix + policy, "{.status.phase}", phase);
    }
  };
  // Jobs whose pods end by themselves.
  create_all("done-");
  wait_for_phase("done-", "Succeeded");
  wait_for_deletion("pods", "done-all");
  wait_for_deletion("services", "done-all");
  EXPECT_EQ(pods_of("done-none"), "pod/done-none-worker-0\n");
  EXPECT_EQ(pods_of("done-running"), "pod/done-running-worker-0\n");
  kubectl_ok({"get", "service/done-running"});
  // Jobs whose pods would continue to train.
  train_forever();
  spec_["runPolicy"] = {{"activeDeadlineSeconds", 8}};
  create_all("late-");
  wait_for_phase("late-", "Failed");
  wait_for_deletion("pods", "late-all");
  wait_for_deletion("services", "late-all");
  wait_for_deletion("pods", "late-running");
  kubectl_ok({"get", "service/late-running"});
  EXPECT_EQ(pods_of("late-none"), "pod/late-none-worker-0\n");
}

// Log shippers and service meshes add containers that never end by themselves.
TEST_F(Policies, AWorkersExitCountsWhileASidecarRuns) {
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
  wait_for_success();
  wait_for_deletion("pods");
  wait("tj.tilewright.dev/failing", R"({.status.conditions[?(@.type=="Failed")].reason})",
       "PermanentExitCode");
  const json status = get("tj.tilewright.dev/failing")["status"];
  EXPECT_EQ(status["failures"][0]["exitCode"], 11) << status;
  EXPECT_THAT(status["summary"]["message"].get<std::string>(), HasSubstr("no-such-model"));
  wait_for_deletion("pods", "failing");
}

TEST_F(Policies, ARecreatedJobStartsFromScratch) {
  train_forever();
  const json first = create(manifest_);
  wait_for_training();
  kubectl_ok({"delete", "tj.tilewright.dev", "mrpc", "--wait=false"});
  spec_["trainer"].update({{"output", "work:again"}, {"max_steps", 2}});
  const json second = create(manifest_);
  wait_for_success();
  const json job = this->job();
  EXPECT_NE(first["metadata"]["uid"], job["metadata"]["uid"]);
  EXPECT_EQ(second["metadata"]["uid"], job["metadata"]["uid"]);
  EXPECT_EQ(job["status"]["restarts"]["total"], 0) << job["status"];
  EXPECT_EQ(get("pod/mrpc-worker-0")["metadata"]["ownerReferences"][0]["uid"],
            second["metadata"]["uid"]);
}

}  // namespace
}  // namespace tilewright
