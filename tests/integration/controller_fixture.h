// Fixture of the controller tests: runs the controller against an API server with a fake node.
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

#include "common/json/timestamp.h"
#include "controller/operator/resources.h"
#include "tests/integration/crd_fixture.h"
#include "tests/integration/faults.h"
#include "tests/support/fake_node.h"
#include "tests/support/running_program.h"

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

// Without leader election, a new controller does not wait for the lease of a killed one.
inline const std::vector<std::string> kNoLeaderElection = {"--leader_elect=false"};

class ControllerTest : public CrdTest {
 protected:
  using CrdTest::CrdTest;
  using json = nlohmann::json;
  using Objects = ObjectWatch::Objects;

  void SetUp() override {
    CrdTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // A separate namespace for each test: no garbage collector runs.
    static int tests = 0;
    namespace_ = fmt::format("controller-{}", ++tests);
    ASSERT_EQ(admin().post("/api/v1/namespaces", {{"metadata", {{"name", namespace_}}}}).status,
              201);
    kube::ConfigSources sources;
    sources.kubeconfig = kubeconfig_ = control_plane().kubeconfig();
    client_ = kube::Client::make(kube::load_config(sources).or_throw()).or_throw();
    node_ = std::make_unique<FakeNode>(control_plane(), *client_, namespace_, "node-" + namespace_);
    jobs_ = std::make_unique<ObjectWatch>(*client_, controller::resource::train_jobs(), namespace_);
  }
  void TearDown() override {
    for (auto& controller : controllers_) {
      if (HasFailure())
        std::cout << "output of a controller:\n" << kill_and_read_output(*controller) << "\n";
    }
    controllers_.clear();
    jobs_.reset();
    node_.reset();
    CrdTest::TearDown();
  }

  // Starts a controller that watches this test's namespace, or all of them. `fault` is
  // TILEWRIGHT_FAULT. Without a `rendezvous_address`, workers get that of the Service, whose
  // endpoint is $POD_IP.
  RunningProgram& start_controller(const std::string& fault = "",
                                   std::vector<std::string> more = {},
                                   const std::string& rendezvous_address = "127.0.0.1:0") {
    std::vector<std::string> arguments = {"controller",
                                          "--kubeconfig=" + kubeconfig_.string(),
                                          "--namespace=" + namespace_,
                                          "--rendezvous_listen=127.0.0.1:0",
                                          "--metrics_listen=127.0.0.1:0",
                                          "--health_listen=127.0.0.1:0"};
    if (!watch_all_namespaces_) arguments.push_back("--watch_namespace=" + namespace_);
    if (!rendezvous_address.empty()) {
      arguments.push_back("--rendezvous_address=" + rendezvous_address);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ScopedFault scoped(fault);
    setenv("POD_NAME", fmt::format("replica-{}", controllers_.size()).c_str(), 1);
    controllers_.push_back(
        std::make_unique<RunningProgram>(program("tilewright"), arguments, temporary_.path()));
    return *controllers_.back();
  }
  static std::string kill_and_read_output(RunningProgram& controller) {
    controller.send(SIGKILL);
    (void)controller.wait();
    return controller.output();
  }

  std::string jobs_path() const {
    return fmt::format("/apis/tilewright.dev/v1alpha1/namespaces/{}/trainjobs", namespace_);
  }
  json create_job(const std::string& manifest = kControllerJob) {
    const HttpResponse made = admin().post(jobs_path(), parse_yaml(manifest));
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }
  HttpResponse change_job(const json& patch, const std::string& name = "mrpc") {
    return admin().merge_patch(jobs_path() + "/" + name, patch);
  }

  // Waits until `holds` is true of the job; prints the job on timeout.
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
           << (job == jobs.end() ? "missing" : job->second.value("status", json()).dump(1));
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
  // Time from the job's first start to its end.
  std::chrono::nanoseconds job_duration() {
    const json status = job()["status"];
    const auto start = parse_timestamp(status["startTime"].get<std::string>());
    const auto end = parse_timestamp(status["completionTime"].get<std::string>());
    return *end - *start;
  }
  // Sets the namespace's ResourceQuota, spec and status: no quota controller runs to copy the spec
  // to the status.
  void set_pod_quota(const char* pods) {
    const std::string quotas = fmt::format("/api/v1/namespaces/{}/resourcequotas", namespace_);
    const json spec = {{"hard", {{"pods", pods}}}};
    if (admin().get(quotas + "/q").ok()) {
      EXPECT_TRUE(admin().merge_patch(quotas + "/q", {{"spec", spec}}).ok());
    } else {
      EXPECT_EQ(admin().post(quotas, {{"metadata", {{"name", "q"}}}, {"spec", spec}}).status, 201);
    }
    const json status = {{"hard", spec["hard"]}, {"used", {{"pods", "0"}}}};
    EXPECT_TRUE(admin().merge_patch(quotas + "/q/status", {{"status", status}}).ok());
  }

  // The content of the Secret that the pod mounts; null if there is no such Secret.
  json job_key_of(const std::string& pod) {
    const json there = node_->pods().objects()[pod];
    for (const json& volume : there["spec"]["volumes"]) {
      if (volume["name"] != "tilewright-job-key") continue;
      const std::string secret = volume["secret"]["secretName"];
      const HttpResponse read =
          admin().get(fmt::format("/api/v1/namespaces/{}/secrets/{}", namespace_, secret));
      return read.json().value(json::json_pointer("/data/job-key"), json());
    }
    return nullptr;
  }

  // Names and UIDs of the pods that are running and not being deleted.
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
  // Reasons of the events on TrainJobs, sorted; `events` of events.k8s.io.
  static std::vector<std::string> reasons_of(const Objects& events) {
    std::vector<std::string> reasons;
    for (const auto& [name, event] : events) {
      if (event["regarding"]["kind"] == "TrainJob") reasons.push_back(event["reason"]);
    }
    std::ranges::sort(reasons);
    return reasons;
  }

  std::string namespace_;
  bool watch_all_namespaces_ = false;
  std::filesystem::path kubeconfig_;  // of the controllers; the proxy's in proxy tests
  TemporaryDirectory temporary_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<FakeNode> node_;
  std::unique_ptr<ObjectWatch> jobs_;
  std::list<std::unique_ptr<RunningProgram>> controllers_;
};

}  // namespace tilewright::testing
