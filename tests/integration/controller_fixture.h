// The real controller against a real API server, with nodes that run nothing: what it makes, writes
// and says.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/manager/resources.h"
#include "tests/integration/crd_fixture.h"
#include "tests/support/running_program.h"
#include "tests/support/stand_in_node.h"

namespace tilewright::testing {

inline constexpr const char* kControllerJob = R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: mrpc}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4}
  trainer: {task: mrpc, model: "work:model", data: "work:data", output: "work:out"}
  worker:
    replicas: 2
    resources: {cpu: "1", memory: 1Gi}
  volumes:
  - name: work
    persistentVolumeClaim: {claimName: work}
)";

// Leadership is not elected here, so that a killed one's lease need not be waited for.
inline const std::vector<std::string> kAlone = {"--leader_elect=false"};

class ControllerTest : public CrdTest {
 protected:
  using CrdTest::CrdTest;
  using json = nlohmann::json;
  using Objects = ObjectWatch::Objects;

  void SetUp() override {
    CrdTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // A namespace of its own for each test: nobody here collects garbage.
    static int tests = 0;
    space_ = fmt::format("controller-{}", ++tests);
    ASSERT_EQ(admin().post("/api/v1/namespaces", {{"metadata", {{"name", space_}}}}).status, 201);
    kube::ConfigSources sources;
    sources.kubeconfig = kubeconfig_ = control_plane().kubeconfig();
    client_ = kube::Client::make(kube::load_config(sources).or_throw()).or_throw();
    node_ = std::make_unique<StandInNode>(control_plane(), *client_, space_, "node-" + space_);
    jobs_ = std::make_unique<ObjectWatch>(*client_, manager::resource::train_jobs(), space_);
  }
  void TearDown() override {
    for (auto& controller : controllers_) {
      if (HasFailure()) std::cout << "a controller said:\n" << said(*controller) << "\n";
    }
    controllers_.clear();
    jobs_.reset();
    node_.reset();
    CrdTest::TearDown();
  }

  // Watches this test's namespace. `fault` is TILEWRIGHT_FAULT. Without a `rendezvous_address` the
  // Service's is published, with $POD_IP behind it.
  RunningProgram& start_controller(const std::string& fault = "",
                                   std::vector<std::string> more = {},
                                   const std::string& rendezvous_address = "127.0.0.1:0") {
    std::vector<std::string> arguments = {"controller",
                                          "--kubeconfig=" + kubeconfig_.string(),
                                          "--namespace=" + space_,
                                          "--watch_namespace=" + space_,
                                          "--rendezvous_listen=127.0.0.1:0",
                                          "--metrics_listen=127.0.0.1:0",
                                          "--health_listen=127.0.0.1:0"};
    if (!rendezvous_address.empty()) {
      arguments.push_back("--rendezvous_address=" + rendezvous_address);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    setenv("TILEWRIGHT_FAULT", fault.c_str(), 1);
    setenv("POD_NAME", fmt::format("replica-{}", controllers_.size()).c_str(), 1);
    controllers_.push_back(
        std::make_unique<RunningProgram>(program("tilewright"), arguments, temporary_.path()));
    unsetenv("TILEWRIGHT_FAULT");
    return *controllers_.back();
  }
  static std::string said(RunningProgram& controller) {
    controller.send(SIGKILL);
    (void)controller.wait();
    return controller.output();
  }

  std::string jobs_path() const {
    return fmt::format("/apis/tilewright.dev/v1alpha1/namespaces/{}/trainjobs", space_);
  }
  json create_job(const std::string& manifest = kControllerJob) {
    const HttpResponse made = admin().post(jobs_path(), tree_of(manifest));
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }
  HttpResponse change_job(const json& patch, const std::string& name = "mrpc") {
    return admin().merge_patch(jobs_path() + "/" + name, patch);
  }

  // Waits until the job is as `holds` says; shows it if it never is.
  ::testing::AssertionResult job_becomes(const std::function<bool(const json&)>& holds,
                                         const std::string& name = "mrpc") {
    const bool came = jobs_->wait_until([&](const Objects& jobs) {
      const auto job = jobs.find(name);
      return job != jobs.end() && holds(job->second);
    });
    if (came) return ::testing::AssertionSuccess();
    const Objects jobs = jobs_->objects();
    const auto job = jobs.find(name);
    return ::testing::AssertionFailure()
           << "the job is "
           << (job == jobs.end() ? "not there" : job->second.value("status", json()).dump(1));
  }
  ::testing::AssertionResult phase_becomes(const std::string& phase) {
    return job_becomes([&](const json& job) { return phase_of(job) == phase; });
  }
  static std::string phase_of(const json& job) {
    return job.value(json::json_pointer("/status/phase"), "");
  }
  static json condition_of(const json& job, const std::string& type) {
    for (const json& condition :
         job.value(json::json_pointer("/status/conditions"), json::array())) {
      if (condition.value("type", "") == type) return condition;
    }
    return {{"status", "absent"}};
  }
  static bool is_true(const json& job, const std::string& type, const std::string& reason = "") {
    const json condition = condition_of(job, type);
    return condition["status"] == "True" && (reason.empty() || condition["reason"] == reason);
  }
  json job(const std::string& name = "mrpc") { return jobs_->objects()[name]; }
  // From the job's first start to its end.
  std::chrono::nanoseconds lasted() {
    const json status = job()["status"];
    const auto start = api::parse_timestamp(status["startTime"].get<std::string>());
    const auto end = api::parse_timestamp(status["completionTime"].get<std::string>());
    return *end - *start;
  }
  // The namespace's ResourceQuota. The quota controller would copy it to its status; without one
  // the test does.
  void limit_pods(const char* pods) {
    const std::string quotas = fmt::format("/api/v1/namespaces/{}/resourcequotas", space_);
    const json spec = {{"hard", {{"pods", pods}}}};
    if (admin().get(quotas + "/q").ok()) {
      EXPECT_TRUE(admin().merge_patch(quotas + "/q", {{"spec", spec}}).ok());
    } else {
      EXPECT_EQ(admin().post(quotas, {{"metadata", {{"name", "q"}}}, {"spec", spec}}).status, 201);
    }
    const json status = {{"hard", spec["hard"]}, {"used", {{"pods", "0"}}}};
    EXPECT_TRUE(admin().merge_patch(quotas + "/q/status", {{"status", status}}).ok());
  }

  // What stands in the Secret that the pod mounts; null where there is none.
  json key_given_to(const std::string& pod) {
    const json there = node_->pods().objects()[pod];
    for (const json& volume : there["spec"]["volumes"]) {
      if (volume["name"] != "tilewright-job-key") continue;
      const std::string secret = volume["secret"]["secretName"];
      const HttpResponse read =
          admin().get(fmt::format("/api/v1/namespaces/{}/secrets/{}", space_, secret));
      return read.json().value(json::json_pointer("/data/job-key"), json());
    }
    return nullptr;
  }

  // By name and UID of those that are running and not being deleted.
  std::map<std::string, std::string> live_pods() {
    std::map<std::string, std::string> live;
    for (const auto& [name, pod] : node_->pods().objects()) {
      if (pod["status"].value("phase", "") == "Running" &&
          !pod["metadata"].contains("deletionTimestamp")) {
        live[name] = pod["metadata"]["uid"];
      }
    }
    return live;
  }
  bool wait_for_live_pods(std::size_t count) {
    return node_->pods().wait_until([&](const Objects& pods) {
      std::size_t live = 0;
      for (const auto& [name, pod] : pods) {
        if (pod["status"].value("phase", "") == "Running" &&
            !pod["metadata"].contains("deletionTimestamp")) {
          ++live;
        }
      }
      return live == count;
    });
  }
  // What people were told of TrainJobs, in the order of the alphabet; `events` of events.k8s.io.
  static std::vector<std::string> reasons_of(const Objects& events) {
    std::vector<std::string> reasons;
    for (const auto& [name, event] : events) {
      if (event["regarding"]["kind"] == "TrainJob") reasons.push_back(event["reason"]);
    }
    std::ranges::sort(reasons);
    return reasons;
  }

  std::string space_;
  std::filesystem::path kubeconfig_;  // of controllers: for one that is not told the truth
  TemporaryDirectory temporary_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<StandInNode> node_;
  std::unique_ptr<ObjectWatch> jobs_;
  std::list<std::unique_ptr<RunningProgram>> controllers_;
};

}  // namespace tilewright::testing
