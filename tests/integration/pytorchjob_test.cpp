// Tests of the controller with PyTorchJobs on an API server, against the objects, values and
// conditions of Kubeflow's training operator v1.9. The differences that
// docs/pytorchjobs.md lists each have a test here or in
// tests/unit/controller/policy/job_traits_test.cpp.
#include "common/net/wait.h"
#include "tests/integration/controller_fixture.h"
#include "tests/support/tcpstore_client.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr const char* kCrd = "pytorchjobs.kubeflow.org";

// The shape of the CPU guides' manifests.
constexpr const char* kGuideJob = R"(apiVersion: "kubeflow.org/v1"
kind: PyTorchJob
metadata: {name: qa}
spec:
  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 4, maxRestarts: 10}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: pytorch
            image: tilewright-worker:0.1.0
            imagePullPolicy: IfNotPresent
            command: [torchrun, /workspace/run_qa.py, --model_name_or_path, distilbert-base-uncased]
            env: [{name: OMP_NUM_THREADS, value: "56"}]
            resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 2, memory: 2Gi}}
            volumeMounts:
            - {name: pvc-volume, mountPath: /tmp/pvc-mount}
            - {name: dshm, mountPath: /dev/shm}
          restartPolicy: Never
          volumes:
          - {name: pvc-volume, persistentVolumeClaim: {claimName: transformers-pvc}}
          - {name: dshm, emptyDir: {medium: Memory}}
)";

json condition(const json& job, const std::string& type) {
  for (const json& each : job.value(json::json_pointer("/status/conditions"), json::array())) {
    if (each["type"] == type) return each;
  }
  return {{"status", "absent"}, {"reason", ""}, {"message", ""}};
}
bool holds(const json& job, const std::string& type) {
  return condition(job, type)["status"] == "True";
}
// The State of `kubectl get pytorchjobs`.
std::string state(const json& job) {
  const json list = job.value(json::json_pointer("/status/conditions"), json::array());
  return list.empty() ? "" : list.back()["type"].get<std::string>();
}

// Polls what no watch of the tests shows; false on timeout.
bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    net::sleep_until(net::within(std::chrono::milliseconds(50)));
  }
  return true;
}

class PyTorchJobTest : public ControllerTest {
 protected:
  void SetUp() override {
    ControllerTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    install_crd([](json&) {});
  }
  void TearDown() override {
    pytorch_jobs_.reset();
    if (client_ && !namespace_.empty()) admin().remove(pytorch_path());
    ControllerTest::TearDown();
  }

  // Replaces the CRD by the project's, changed by `change`.
  void install_crd(const std::function<void(json& status_schema)>& change) {
    pytorch_jobs_.reset();
    const std::string path = std::string(kCrdsPath) + "/" + kCrd;
    json crd = parse_yaml(read_text(source_dir() / "crds" / (std::string(kCrd) + ".yaml")));
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]);
    const HttpResponse existing = admin().get(path);
    if (existing.ok()) {
      ASSERT_TRUE(admin().merge_patch(path, {{"spec", crd["spec"]}}).ok());
    } else {
      const HttpResponse made = admin().post(kCrdsPath, crd);
      ASSERT_EQ(made.status, 201) << made.message();
    }
    ASSERT_TRUE(eventually([&] { return admin().get(pytorch_path()).ok(); }));
    pytorch_jobs_ =
        std::make_unique<ObjectWatch>(*client_, controller::resource::pytorch_jobs(), namespace_);
  }

  void start(std::vector<std::string> more = {}) {
    more.insert(more.begin(), "--enable_pytorchjobs");
    start_controller("", more);
  }
  // Starts a controller with a Service, through which torchrun's agents reach the operator's store.
  // Returns the cluster IP of the Service; `store` is where the controller listens.
  std::string start_with_store(net::Address& store, std::vector<std::string> more = {}) {
    const HttpResponse made =
        admin().post(core("services"), {{"metadata", {{"name", "tilewright-rendezvous"}}},
                                        {"spec",
                                         {{"ports",
                                           {{{"name", "rendezvous"}, {"port", 29400}},
                                            {{"name", "tcpstore"}, {"port", 29401}}}}}}});
    EXPECT_TRUE(made.status == 201 || made.status == 409) << made.message();  // or it exists
    // An EndpointSlice takes no loopback address. Nothing connects to this one (RFC 5737).
    setenv("POD_IP", "192.0.2.10", 1);
    more.insert(more.begin(), {"--enable_pytorchjobs", "--tcpstore_listen=127.0.0.1:0"});
    start_controller("", more, "");
    unsetenv("POD_IP");
    ObjectWatch slices(*client_, kube::resource::endpoint_slices(), namespace_);
    EXPECT_TRUE(slices.wait_until([&](const Objects& found) {
      const auto slice = found.find("tilewright-rendezvous");
      if (slice == found.end() || slice->second["ports"].size() != 2) return false;
      store = {"127.0.0.1", slice->second["ports"][1]["port"]};
      return true;
    }));
    return admin().get(core("services/tilewright-rendezvous")).json()["spec"]["clusterIP"];
  }
  std::string pytorch_path() const {
    return fmt::format("/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs", namespace_);
  }
  json create(const json& manifest) {
    const HttpResponse made = admin().post(pytorch_path(), manifest);
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }
  static json guide_job(const json& changes = json::object()) {
    json job = parse_yaml(kGuideJob);
    job.merge_patch(changes);
    return job;
  }
  HttpResponse change(const json& patch) {
    return admin().merge_patch(pytorch_path() + "/qa", patch);
  }
  ::testing::AssertionResult becomes(const std::function<bool(const json&)>& expected) {
    const bool came = pytorch_jobs_->wait_until([&](const Objects& jobs) {
      const auto found = jobs.find("qa");
      return found != jobs.end() && expected(found->second);
    });
    if (came) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "the job is " << current().dump(1);
  }
  ::testing::AssertionResult state_becomes(const std::string& wanted) {
    return becomes([&](const json& job) { return state(job) == wanted; });
  }
  json current() { return pytorch_jobs_->objects()["qa"]; }
  json get(const std::string& path) { return admin().get(path).json(); }
  std::string core(const std::string& plural) const {
    return fmt::format("/api/v1/namespaces/{}/{}", namespace_, plural);
  }
  std::map<std::string, json> services() {
    std::map<std::string, json> found;
    const json list = get(core("services"));
    for (const json& each : list["items"]) {
      found[each["metadata"]["name"]] = each;
    }
    return found;
  }
  json pod(const std::string& name) { return node_->pods().objects()[name]; }
  std::map<std::string, std::string> variables(const std::string& name) {
    std::map<std::string, std::string> found;
    const json from = pod(name);
    for (const json& each : from["spec"]["containers"][0]["env"]) {
      found[each["name"]] = each.value("value", "");
    }
    return found;
  }
  // The pod of this name has been created anew and runs.
  bool wait_for_new_pod(const std::string& name, const std::string& old_uid) {
    return node_->pods().wait_until([&](const Objects& pods) {
      const auto found = pods.find(name);
      return found != pods.end() && found->second["metadata"]["uid"] != old_uid &&
             found->second["status"].value("phase", "") == "Running";
    });
  }

  std::unique_ptr<ObjectWatch> pytorch_jobs_;
};

TEST_F(PyTorchJobTest, RunsAJobOfTheGuidesToSuccess) {
  start();
  const json made = create(guide_job());
  ASSERT_TRUE(state_becomes("Running"));
  ASSERT_THAT(node_->pods().objects(),
              UnorderedElementsAre(Key("qa-worker-0"), Key("qa-worker-1")));
  const json worker = pod("qa-worker-1");
  EXPECT_EQ(worker["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
  EXPECT_EQ(worker["metadata"]["labels"]["training.kubeflow.org/replica-index"], "1");
  EXPECT_THAT(variables("qa-worker-1"),
              IsSupersetOf({Pair("PET_RDZV_ENDPOINT", "qa-worker-0:23456"),
                            Pair("PET_NNODES", "1:4"), Pair("PET_MAX_RESTARTS", "10"),
                            Pair("PET_NPROC_PER_NODE", "auto"), Pair("OMP_NUM_THREADS", "56")}));
  EXPECT_THAT(services(), UnorderedElementsAre(Key("qa-worker-0"), Key("qa-worker-1")));
  EXPECT_TRUE(job_key_of("qa-worker-0").is_string()) << "for Tilewright's worker";
  const json running = current()["status"];
  EXPECT_EQ(running["replicaStatuses"]["Worker"]["active"], 2);
  EXPECT_EQ(condition(current(), "Running")["reason"], "PyTorchJobRunning");
  EXPECT_TRUE(running.contains("startTime"));

  node_->succeed_all();
  ASSERT_TRUE(state_becomes("Succeeded"));
  const json done = current();
  EXPECT_EQ(condition(done, "Succeeded")["reason"], "PyTorchJobSucceeded");
  EXPECT_EQ(condition(done, "Running")["status"], "False");
  EXPECT_EQ(condition(done, "Created")["reason"], "PyTorchJobCreated");
  EXPECT_EQ(done["status"]["replicaStatuses"]["Worker"]["succeeded"], 2);
  EXPECT_TRUE(done["status"].contains("completionTime"));
  EXPECT_EQ(done["status"]["tilewright"]["phase"], "Succeeded");
  EXPECT_THAT(node_->pods().objects(), SizeIs(2)) << "cleanPodPolicy defaults to None";
}

// The addresses of the pods are loopback addresses, from which the test connects as their agents.
TEST_F(PyTorchJobTest, AgentsUseAStoreOfTheOperator) {
  net::Address store;
  const std::string service = start_with_store(store);
  ASSERT_NE(store.port, 0);
  TcpStoreClient stranger(store, "127.0.0.9");
  stranger.validate();
  stranger.start_wait({"/key"});
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  EXPECT_THAT(variables("qa-worker-1"),
              IsSupersetOf({Pair("PET_RDZV_ENDPOINT", service + ":29401"),
                            Pair("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", std::string("1"))}));
  TcpStoreClient first(store, "127.0.0.11"), second(store, "127.0.0.12");
  for (TcpStoreClient* client : {&first, &second}) client->validate();
  first.set("/key", "value");
  node_->set_address("qa-worker-0", "127.0.0.11");
  first.ping();
  node_->set_address("qa-worker-1", "127.0.0.12");
  EXPECT_EQ(second.get("/key"), "value");

  const std::string failed = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 1);
  EXPECT_TRUE(second.closed()) << "another pod may get the address";
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", failed));
  node_->set_address("qa-worker-1", "127.0.0.13");
  TcpStoreClient replacement(store, "127.0.0.13");
  replacement.validate();
  EXPECT_EQ(replacement.get("/key"), "value") << "the store outlives the pods";

  ASSERT_TRUE(admin().remove(pytorch_path() + "/qa").ok());
  EXPECT_TRUE(first.closed());
  EXPECT_TRUE(replacement.closed());
  EXPECT_TRUE(stranger.closed()) << "no pod has its address";
}

// PyTorch's client does not reconnect, so each agent ends with exit code 1. That is not its fault.
TEST_F(PyTorchJobTest, AChangeOfTheLeaderUsesNoRestarts) {
  net::Address store;
  start_with_store(store, kNoLeaderElection);
  create(guide_job({{"spec", {{"runPolicy", {{"backoffLimit", 1}}}}}}));
  ASSERT_TRUE(wait_for_live_pods(2));
  const auto before = live_pods();
  kill_and_read_output(*controllers_.front());
  controllers_.clear();
  for (const char* pod : {"qa-worker-0", "qa-worker-1"}) node_->end_container(pod, 1);
  start_with_store(store, kNoLeaderElection);
  for (const auto& [pod, uid] : before) ASSERT_TRUE(wait_for_new_pod(pod, uid));
  ASSERT_TRUE(becomes([](const json& job) {
    const json restarts = job["status"]["tilewright"].value("restarts", json::object());
    return restarts.value("infrastructure", 0) == 2 && restarts.value("program", 0) == 0;
  }));
  EXPECT_EQ(current()["status"]["tilewright"]["failures"][0]["reason"], "StoreLost");
}

// Agents with two rendezvous endpoints would train twice.
TEST_F(PyTorchJobTest, AgentsUseTheEndpointOfTheOthersOfTheirJob) {
  start(kNoLeaderElection);
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  EXPECT_THAT(variables("qa-worker-1"), Contains(Pair("PET_RDZV_ENDPOINT", "qa-worker-0:23456")));
  kill_and_read_output(*controllers_.front());
  controllers_.clear();
  net::Address store;
  const std::string service = start_with_store(store, kNoLeaderElection);
  const auto before = live_pods();
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", before.at("qa-worker-1")));
  EXPECT_THAT(variables("qa-worker-1"), Contains(Pair("PET_RDZV_ENDPOINT", "qa-worker-0:23456")));
  // A new job, of the same name, uses the store of the operator.
  ASSERT_TRUE(admin().remove(pytorch_path() + "/qa").ok());
  // No garbage collector runs here.
  ASSERT_TRUE(admin().remove(core("pods")).ok());
  for (const char* name : {"qa-worker-0", "qa-worker-1"}) {
    ASSERT_TRUE(admin().remove(core("services/" + std::string(name))).ok());
  }
  ASSERT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
  const std::string uid = create(guide_job())["metadata"]["uid"];
  ASSERT_TRUE(becomes(
      [&](const json& job) { return job["metadata"]["uid"] == uid && state(job) == "Running"; }));
  EXPECT_THAT(variables("qa-worker-1"), Contains(Pair("PET_RDZV_ENDPOINT", service + ":29401")));
}

TEST_F(PyTorchJobTest, RunsAJobWithAMaster) {
  start();
  json manifest = guide_job({{"spec", {{"elasticPolicy", nullptr}, {"nprocPerNode", "2"}}}});
  json& specs = manifest["spec"]["pytorchReplicaSpecs"];
  specs["Master"] = specs["Worker"];
  specs["Master"]["replicas"] = 1;
  create(manifest);
  ASSERT_TRUE(state_becomes("Running"));
  EXPECT_THAT(variables("qa-worker-1"),
              IsSupersetOf({Pair("MASTER_ADDR", "qa-master-0"), Pair("MASTER_PORT", "23456"),
                            Pair("WORLD_SIZE", "6"), Pair("RANK", "2"), Pair("PET_NNODES", "3")}));
  EXPECT_EQ(current()["status"]["replicaStatuses"]["Master"]["active"], 1);
  EXPECT_EQ(pod("qa-worker-1")["spec"].value("initContainers", json::array()), json::array());
  node_->end_container("qa-master-0", 0);
  node_->end_container("qa-worker-0", 0);
  node_->end_container("qa-worker-1", 0);
  ASSERT_TRUE(state_becomes("Succeeded"));
  EXPECT_EQ(current()["status"]["replicaStatuses"]["Master"]["succeeded"], 1);
}

TEST_F(PyTorchJobTest, RestartsOnlyTheWorkerThatFailed) {
  start();
  ObjectWatch events(*client_, kube::resource::events(), namespace_);
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  const auto before = live_pods();
  node_->end_container("qa-worker-1", 1, "Error", "a last line");
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", before.at("qa-worker-1")));
  ASSERT_TRUE(becomes([](const json& job) {
    return state(job) == "Running" && job["status"]["tilewright"]["restarts"]["program"] == 1;
  }));
  EXPECT_EQ(live_pods().at("qa-worker-0"), before.at("qa-worker-0"));
  EXPECT_EQ(current()["status"]["tilewright"]["failures"][0]["lastLines"], json({"a last line"}));
  EXPECT_TRUE(events.wait_until([](const Objects& all) {
    return std::ranges::any_of(all, [](const auto& each) {
      return each.second["reason"] == "PyTorchJobRestarting" &&
             each.second["regarding"]["kind"] == "PyTorchJob";
    });
  }));
}

// Kubeflow's operator adds up the restarts of the containers that exist and so begins again with
// each new pod.
TEST_F(PyTorchJobTest, EndsWhenTheRestartsAreUsedUp) {
  start();
  create(guide_job({{"spec", {{"runPolicy", {{"backoffLimit", 1}}}}}}));
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::string first = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", first));
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(state_becomes("Failed"));
  EXPECT_EQ(condition(current(), "Failed")["reason"], "PyTorchJobFailed");
  EXPECT_THAT(condition(current(), "Failed")["message"].get<std::string>(),
              HasSubstr("1 of 1 restarts are used"));
}

TEST_F(PyTorchJobTest, CleanPodPolicyRunningDeletesRunningPodsWithTheirServices) {
  start();
  json manifest = guide_job({{"spec", {{"runPolicy", {{"cleanPodPolicy", "Running"}}}}}});
  manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never";
  create(manifest);
  ASSERT_TRUE(wait_for_live_pods(2));
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(state_becomes("Failed"));
  EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.size() == 1; }));
  EXPECT_THAT(node_->pods().objects(), UnorderedElementsAre(Key("qa-worker-1")));
  EXPECT_THAT(services(), UnorderedElementsAre(Key("qa-worker-1")));
  ASSERT_TRUE(becomes([](const json& job) {
    return job["status"]["replicaStatuses"]["Worker"].value("active", 0) == 0;
  }));
  EXPECT_EQ(current()["status"]["replicaStatuses"]["Worker"]["failed"], 1);
}

// Kubeflow's operator checks the deadline only when something else happens to the job.
TEST_F(PyTorchJobTest, EndsAtItsDeadline) {
  start();
  create(guide_job({{"spec", {{"runPolicy", {{"activeDeadlineSeconds", 3}}}}}}));
  ASSERT_TRUE(state_becomes("Failed"));
  EXPECT_THAT(condition(current(), "Failed")["message"].get<std::string>(),
              HasSubstr("activeDeadlineSeconds"));
  // Whatever cleanPodPolicy says, which is None here.
  EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
  EXPECT_TRUE(services().empty());
}

// With Kubeflow's operator such a job has no completionTime, and its TTL never ends.
TEST_F(PyTorchJobTest, APermanentExitCodeEndsTheJobForGood) {
  start();
  json manifest = guide_job({{"spec", {{"runPolicy", {{"ttlSecondsAfterFinished", 10}}}}}});
  manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode";
  create(manifest);
  ASSERT_TRUE(wait_for_live_pods(2));
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(becomes([](const json& seen) {
    return state(seen) == "Failed" && seen["status"].contains("completionTime");
  }));
  EXPECT_TRUE(pytorch_jobs_->wait_until([](const Objects& jobs) { return jobs.empty(); }));
}

// With Kubeflow's operator an elastic job succeeds when the first worker exits.
TEST_F(PyTorchJobTest, OneWorkersExitIsNotTheJobs) {
  start();
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  node_->end_container("qa-worker-0", 0);
  ASSERT_TRUE(becomes([](const json& job) {
    return job["status"]["replicaStatuses"]["Worker"]["succeeded"] == 1;
  }));
  EXPECT_FALSE(holds(current(), "Succeeded"));
  const std::string second = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", second));
  node_->end_container("qa-worker-1", 0);
  ASSERT_TRUE(state_becomes("Succeeded"));
}

TEST_F(PyTorchJobTest, AnOomKillIsNotRetriedForEver) {
  start();
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::string first = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 137, "OOMKilled");
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", first));
  const std::string second = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 137, "OOMKilled");
  ASSERT_TRUE(becomes([](const json& job) { return holds(job, "Blocked"); }));
  EXPECT_THAT(condition(current(), "Blocked")["message"].get<std::string>(),
              HasSubstr("raise the memory limit of the container pytorch"));
  EXPECT_NE(state(current()), "Blocked") << "State is one of Kubeflow's";
  json specs = current()["spec"]["pytorchReplicaSpecs"];
  specs["Worker"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "4Gi";
  specs["Worker"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "4Gi";
  ASSERT_TRUE(change({{"spec", {{"pytorchReplicaSpecs", specs}}}}).ok());
  EXPECT_TRUE(wait_for_new_pod("qa-worker-1", second));
}

TEST_F(PyTorchJobTest, SuspendsAndResumes) {
  start();
  create(guide_job());
  ASSERT_TRUE(wait_for_live_pods(2));
  ASSERT_TRUE(change({{"spec", {{"runPolicy", {{"suspend", true}}}}}}).ok());
  ASSERT_TRUE(state_becomes("Suspended"));
  EXPECT_EQ(condition(current(), "Suspended")["reason"], "PyTorchJobSuspended");
  EXPECT_TRUE(node_->pods().wait_until([](const Objects& pods) { return pods.empty(); }));
  EXPECT_TRUE(eventually([&] { return services().empty(); }));
  ASSERT_TRUE(change({{"spec", {{"runPolicy", {{"suspend", false}}}}}}).ok());
  ASSERT_TRUE(state_becomes("Running"));
  EXPECT_THAT(services(), UnorderedElementsAre(Key("qa-worker-0"), Key("qa-worker-1")));
  EXPECT_EQ(condition(current(), "Suspended")["reason"], "PyTorchJobResumed");
  EXPECT_EQ(condition(current(), "Suspended")["status"], "False");
}

TEST_F(PyTorchJobTest, LeavesTheJobsOfOtherOperatorsAlone) {
  start({"--beside_kubeflow", "--pytorchjobs_managed_by=example.org/operator"});
  for (const auto& [name, manager] :
       {std::pair{"unset", json()},
        std::pair{"kubeflow", json("kubeflow.org/training-operator")}}) {
    create(guide_job(
        {{"metadata", {{"name", name}}}, {"spec", {{"runPolicy", {{"managedBy", manager}}}}}}));
  }
  create(guide_job({{"spec", {{"runPolicy", {{"managedBy", "example.org/operator"}}}}}}));
  ASSERT_TRUE(state_becomes("Running"));
  EXPECT_THAT(node_->pods().objects(), SizeIs(2)) << "those of the job that names this operator";
  EXPECT_FALSE(pytorch_jobs_->objects()["unset"].contains("status"));
  EXPECT_FALSE(pytorch_jobs_->objects()["kubeflow"].contains("status"));
}

// Kubeflow's CRD has no status.tilewright, and the API server drops the field.
TEST_F(PyTorchJobTest, KeepsItsStateWithTheCrdOfKubeflow) {
  install_crd([](json& status) { status["properties"].erase("tilewright"); });
  start();
  create(guide_job({{"spec", {{"runPolicy", {{"backoffLimit", 1}}}}}}));
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::string first = live_pods().at("qa-worker-1");
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(wait_for_new_pod("qa-worker-1", first));
  ASSERT_TRUE(becomes(
      [](const json& job) { return state(job) == "Running" && holds(job, "TilewrightState"); }));
  EXPECT_FALSE(current()["status"].contains("tilewright"));
  // A new controller knows the restart of the first one.
  kill_and_read_output(*controllers_.back());
  controllers_.clear();
  start(kNoLeaderElection);
  node_->end_container("qa-worker-1", 1);
  ASSERT_TRUE(state_becomes("Failed"));
  install_crd([](json&) {});
}

TEST_F(PyTorchJobTest, AddsAnAutoscalerAndFollowsIt) {
  start();
  json manifest = guide_job();
  manifest["spec"]["elasticPolicy"]["metrics"] = json::parse(
      R"([{"type": "Resource", "resource": {"name": "cpu",
           "target": {"type": "Utilization", "averageUtilization": 80}}}])");
  create(manifest);
  ASSERT_TRUE(wait_for_live_pods(2));
  const std::string path =
      fmt::format("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/qa", namespace_);
  EXPECT_EQ(get(path)["spec"]["maxReplicas"], 4);
  // As the autoscaler does.
  ASSERT_TRUE(
      admin().merge_patch(pytorch_path() + "/qa/scale", {{"spec", {{"replicas", 3}}}}).ok());
  ASSERT_TRUE(wait_for_live_pods(3));
  EXPECT_THAT(services(), Contains(Key("qa-worker-2"))) << "made before the pod";
  ASSERT_TRUE(change({{"spec", {{"elasticPolicy", {{"maxReplicas", 8}}}}}}).ok());
  ASSERT_TRUE(
      admin().merge_patch(pytorch_path() + "/qa/scale", {{"spec", {{"replicas", 1}}}}).ok());
  ASSERT_TRUE(wait_for_live_pods(1));
  ASSERT_TRUE(becomes(
      [](const json& job) { return job["status"]["replicaStatuses"]["Worker"]["active"] == 1; }));
  EXPECT_EQ(get(path)["spec"]["maxReplicas"], 8);
  // Status and pods come first.
  EXPECT_TRUE(eventually([&] { return services().size() == 1; }));
  EXPECT_THAT(services(), Contains(Key("qa-worker-0")));
  ASSERT_TRUE(change({{"spec", {{"runPolicy", {{"suspend", true}}}}}}).ok());
  ASSERT_TRUE(state_becomes("Suspended"));
  EXPECT_TRUE(eventually([&] { return admin().get(path).status == 404; }));
}

TEST_F(PyTorchJobTest, RunsBesideTrainJobsOfTheSameName) {
  start();
  json manifest = guide_job({{"metadata", {{"name", "mrpc"}}}});
  create(manifest);
  ASSERT_TRUE(wait_for_live_pods(2));
  create_job();
  // The pods of both kinds have the same names, so the second job waits and says so.
  ASSERT_TRUE(job_becomes([](const json& job) { return is_true(job, "Blocked", "NameTaken"); }));
  ASSERT_TRUE(admin().remove(pytorch_path() + "/mrpc").ok());
  for (const char* name : {"mrpc-worker-0", "mrpc-worker-1"}) {
    ASSERT_TRUE(admin().remove(core("pods") + "/" + name).ok());
  }
  ASSERT_TRUE(phase_becomes("Running"));
}

TEST_F(PyTorchJobTest, SaysWhatIsWrongWithAJob) {
  start();
  json manifest = guide_job();
  manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] =
      "main";
  const HttpResponse made = admin().post(pytorch_path(), manifest);
  ASSERT_EQ(made.status, 201) << made.message();
  ASSERT_TRUE(becomes([](const json& job) { return holds(job, "Blocked"); }));
  EXPECT_THAT(condition(current(), "Blocked")["message"].get<std::string>(),
              AllOf(HasSubstr("pytorch"), HasSubstr("fix the spec to resume")));
  EXPECT_THAT(node_->pods().objects(), SizeIs(0));
}

// Without the flag PyTorchJobs belong to others; TrainJobs run where no CRD of PyTorchJobs exists.
TEST_F(ControllerTest, RunsTrainJobsWithoutTheCrdOfPyTorchJobs) {
  const std::string path = std::string(kCrdsPath) + "/" + kCrd;
  admin().remove(path);
  ASSERT_TRUE(eventually([&] { return !admin().get(path).ok(); })) << "the CRD still exists";
  start_controller("", {"--enable_pytorchjobs"});
  create_job();
  ASSERT_TRUE(phase_becomes("Running"));
}

}  // namespace
}  // namespace tilewright::testing
