// PyTorchJobs on a real API server with the CRD of this project or, if TILEWRIGHT_PYTORCHJOB_CRD is
// set, with the CRD in that file: `make kubeflow-crd` runs the tests with Kubeflow's.
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>
#include <string>

#include "common/base/strings.h"
#include "common/json/timestamp.h"
#include "common/json/yaml.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "tests/integration/crd_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kPath = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs";

bool is_kubeflows() { return !environment_variable("TILEWRIGHT_PYTORCHJOB_CRD").empty(); }

class PyTorchJobCrd : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ready_ = true;
    if (admin().get(std::string(kCrdsPath) + "/pytorchjobs.kubeflow.org").ok()) return;
    const std::string file = is_kubeflows()
                                 ? environment_variable("TILEWRIGHT_PYTORCHJOB_CRD")
                                 : (source_dir() / "crds/pytorchjobs.kubeflow.org.yaml").string();
    const CommandResult made = control_plane().kubectl({"apply", "--server-side", "-f", file});
    ASSERT_EQ(made.exit_code, 0) << made.error;
    const CommandResult waited = control_plane().wait_for_crd("pytorchjobs.kubeflow.org");
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
  }
  void TearDown() override {
    if (ready_) admin().remove(kPath);
    ClusterTest::TearDown();
  }
  static HttpsClient& admin() { return control_plane().admin(); }

  // Creates the object as kubectl does, with unknown fields as errors, and reads back the stored
  // one.
  static json created(const json& object) {
    const HttpResponse made = admin().post(kPath + "?fieldValidation=Strict", object);
    EXPECT_EQ(made.status, 201) << made.message() << "\n" << object;
    return made.status == 201 ? made.json() : json::object();
  }

 private:
  bool ready_ = false;
};

json container(const json& more = json::object()) {
  json result = {{"name", "pytorch"}, {"image", "trainer:1"}};
  result.update(more);
  return result;
}
json replica(std::int64_t replicas, json container) {
  return {{"replicas", replicas},
          {"restartPolicy", "OnFailure"},
          {"template", {{"spec", {{"containers", json::array({std::move(container)})}}}}}};
}
json job(const std::string& name, json spec) {
  return {{"apiVersion", "kubeflow.org/v1"},
          {"kind", "PyTorchJob"},
          {"metadata", {{"name", name}}},
          {"spec", std::move(spec)}};
}

// The structures of the examples in Kubeflow's repository.
std::vector<json> example_jobs() {
  const json gpu = {{"resources", {{"limits", {{"nvidia.com/gpu", 1}}}}}};
  json gloo = container(gpu);
  gloo["args"] = {"--backend", "gloo"};
  json echo = container(
      {{"imagePullPolicy", "IfNotPresent"},
       {"env", json::array({{{"name", "LOGLEVEL"}, {"value", "DEBUG"}}})},
       {"command", {"python", "-m", "torch.distributed.run", "--rdzv_backend=c10d", "./echo.py"}}});
  json without_policy = replica(2, echo);
  without_policy.erase("restartPolicy");
  const json metric = {
      {"type", "Resource"},
      {"resource",
       {{"name", "cpu"}, {"target", {{"type", "Utilization"}, {"averageUtilization", 80}}}}}};
  return {
      job("master-and-worker",
          {{"pytorchReplicaSpecs", {{"Master", replica(1, gloo)}, {"Worker", replica(1, gloo)}}}}),
      job("elastic-without-restart-policy",
          {{"elasticPolicy",
            {{"rdzvBackend", "c10d"},
             {"minReplicas", 1},
             {"maxReplicas", 2},
             {"maxRestarts", 100}}},
           {"pytorchReplicaSpecs", {{"Worker", without_policy}}}}),
      job("elastic-with-metrics", {{"elasticPolicy",
                                    {{"rdzvBackend", "c10d"},
                                     {"minReplicas", 1},
                                     {"maxReplicas", 3},
                                     {"maxRestarts", 100},
                                     {"metrics", json::array({metric})}}},
                                   {"pytorchReplicaSpecs", {{"Worker", replica(2, echo)}}}}),
      job("two-processes",
          {{"nprocPerNode", "2"},
           {"pytorchReplicaSpecs",
            {{"Master", replica(1, container({{"command", {"torchrun", "demo.py"}}}))},
             {"Worker", replica(1, container({{"command", {"torchrun", "demo.py"}}}))}}}})};
}

// The spec without what the API server adds.
json spec_of(json object) {
  if (object["spec"].contains("runPolicy")) {
    // Kubeflow's CRD has a default for this field.
    if (!object["spec"]["runPolicy"].value("suspend", true)) {
      object["spec"]["runPolicy"].erase("suspend");
    }
  }
  return object["spec"];
}

TEST_F(PyTorchJobCrd, StoresTheExamplesUnchanged) {
  for (const json& object : example_jobs()) {
    const json stored = created(object);
    EXPECT_EQ(spec_of(stored), spec_of(object));
    api::DecodedPyTorchJob decoded = api::decode_pytorchjob(stored, api::FieldValidation::kStrict);
    EXPECT_TRUE(decoded.ok()) << sentences(decoded.errors);
    api::apply_defaults(decoded.job);
    const api::Findings findings = api::validate(decoded.job);
    EXPECT_TRUE(findings.ok()) << sentences(findings.errors);
  }
}

TEST_F(PyTorchJobCrd, StoresTheGuidesManifestsUnchanged) {
  for (const char* name : {"pytorchjob-bert-large.yaml", "pytorchjob-distilbert.yaml"}) {
    const std::string file = source_dir() / "tests/golden/guides" / name;
    json object = parse_yaml(read_text(file));
    object["metadata"].erase("namespace");
    object["metadata"]["name"] = "guide";
    const json stored = created(object);
    EXPECT_EQ(spec_of(stored), spec_of(object)) << name;
    EXPECT_TRUE(api::decode_pytorchjob(stored, api::FieldValidation::kStrict).ok());
    ASSERT_TRUE(admin().remove(kPath + "/guide").ok());
    // The file as it is, as a user creates it.
    if (parse_yaml(read_text(file))["metadata"].contains("namespace")) {
      control_plane().kubectl({"create", "namespace", "kubeflow"});
    }
    const CommandResult made = control_plane().kubectl({"create", "-f", file});
    EXPECT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, HasSubstr("pytorchjob.kubeflow.org/transformers-pytorchjob created"));
    const CommandResult gone = control_plane().kubectl({"delete", "-f", file});
    EXPECT_EQ(gone.exit_code, 0) << gone.error;
  }
}

// Values at random for every field of the API. A fixed seed, printed on failure.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  json make(const std::string& name) {
    json spec = json::object();
    json& types = spec["pytorchReplicaSpecs"] = json::object();
    // Names of the types in any case, as Kubeflow takes them.
    if (maybe()) types[pick({"Master", "master", "MASTER"})] = replica_spec();
    if (maybe() || types.empty()) types[pick({"Worker", "worker", "WorKer"})] = replica_spec();
    if (maybe()) spec["nprocPerNode"] = pick({"auto", "cpu", "gpu", "2"});
    if (maybe()) spec["elasticPolicy"] = elastic_policy();
    if (maybe()) spec["runPolicy"] = run_policy();
    return job(name, spec);
  }

 private:
  bool maybe() { return std::uniform_int_distribution(0, 1)(random_) == 1; }
  int number(int most) { return std::uniform_int_distribution(1, most)(random_); }
  std::string pick(const std::vector<std::string>& values) {
    return values[static_cast<std::size_t>(number(static_cast<int>(values.size()))) - 1];
  }
  void put(json& object, const char* name, json value) {
    if (maybe()) object[name] = std::move(value);
  }

  json elastic_policy() {
    json policy = json::object();
    put(policy, "minReplicas", number(5));
    put(policy, "maxReplicas", number(5));
    put(policy, "rdzvBackend", pick({"c10d", "etcd", "etcd-v2", "static"}));
    put(policy, "rdzvPort", number(65535));
    put(policy, "rdzvHost", "host");
    put(policy, "rdzvId", "id");
    put(policy, "rdzvConf", {{{"key", "timeout"}, {"value", "900"}}});
    put(policy, "standalone", maybe());
    put(policy, "nProcPerNode", number(4));
    put(policy, "maxRestarts", number(100));
    return policy;
  }
  json run_policy() {
    json policy = json::object();
    put(policy, "cleanPodPolicy", pick({"None", "Running", "All"}));
    put(policy, "ttlSecondsAfterFinished", number(1000));
    put(policy, "activeDeadlineSeconds", number(1000));
    put(policy, "backoffLimit", number(10));
    put(policy, "suspend", true);
    put(policy, "managedBy", pick({"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"}));
    json scheduling = json::object();
    put(scheduling, "minAvailable", number(3));
    put(scheduling, "queue", "batch");
    put(scheduling, "minResources", {{"cpu", 4}, {"memory", "8Gi"}});
    put(scheduling, "priorityClass", "high");
    put(scheduling, "scheduleTimeoutSeconds", number(100));
    put(policy, "schedulingPolicy", scheduling);
    return policy;
  }
  json replica_spec() {
    json more = json::object();
    put(more, "command", {"torchrun", "train.py"});
    put(more, "args", {"--a", "1"});
    put(more, "env",
        {{{"name", "A"}, {"value", "1"}},
         {{"name", "B"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}}});
    put(more, "resources", {{"limits", {{"cpu", "1"}, {"memory", "1Gi"}}}});
    put(more, "volumeMounts", {{{"name", "v"}, {"mountPath", "/v"}}});
    put(more, "securityContext", {{"runAsUser", 1}});
    json spec = {{"containers", {container(more)}}};
    put(spec, "nodeSelector", {{"a", "b"}});
    put(spec, "tolerations", {{{"key", "a"}, {"operator", "Exists"}}});
    put(spec, "initContainers", {{{"name", "first"}, {"image", "i"}}});
    put(spec, "volumes", {{{"name", "v"}, {"emptyDir", {{"medium", "Memory"}}}}});
    put(spec, "restartPolicy", "Never");
    put(spec, "hostNetwork", true);
    json replica = {{"template", {{"spec", spec}}}};
    put(replica["template"], "metadata", {{"labels", {{"a", "b"}}}, {"annotations", {{"c", "d"}}}});
    put(replica, "replicas", number(4));
    put(replica, "restartPolicy", pick({"Always", "OnFailure", "Never", "ExitCode", ""}));
    return replica;
  }

  std::mt19937 random_;
};

TEST_F(PyTorchJobCrd, StoresGeneratedJobsUnchanged) {
  Generator generator(14);
  for (int i = 0; i < 200; ++i) {
    const json object = generator.make("made-" + std::to_string(i));
    const json stored = created(object);
    ASSERT_EQ(spec_of(stored), spec_of(object)) << "job " << i << " of seed 14";
    const api::DecodedPyTorchJob decoded = api::decode_pytorchjob(stored);
    ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors) << object;
  }
}

// What Kubeflow's CRD refuses: wrong types, and a job without pytorchReplicaSpecs.
TEST_F(PyTorchJobCrd, RefusesWrongTypes) {
  const auto refused = [&](const json& spec) {
    const HttpResponse answer = admin().post(kPath, job("bad", spec));
    EXPECT_EQ(answer.status, 422) << spec << answer.body.substr(0, 200);
  };
  const json types = {{"Worker", replica(1, container())}};
  refused(json::object());
  refused({{"pytorchReplicaSpecs", types}, {"nprocPerNode", 2}});
  refused({{"pytorchReplicaSpecs", {{"Worker", {{"replicas", "two"}}}}}});
  refused({{"pytorchReplicaSpecs", types}, {"elasticPolicy", {{"minReplicas", 1.5}}}});
  refused({{"pytorchReplicaSpecs", types}, {"runPolicy", {{"suspend", "yes"}}}});
}

TEST_F(PyTorchJobCrd, StoresTheStatusThatTheOperatorWrites) {
  json object = created(example_jobs()[0]);
  api::PyTorchJobStatus status;
  const api::Timestamp time = parse_timestamp("2026-01-31T23:59:59Z");
  status.conditions = {
      {"Created", api::ConditionStatus::kTrue, "PyTorchJobCreated", "created", time, time},
      {"Running", api::ConditionStatus::kTrue, "PyTorchJobRunning", "running", time, time}};
  status.replica_statuses["Worker"] = {
      .active = 1, .succeeded = 0, .failed = 2, .selector = "training.kubeflow.org/job-name=a"};
  status.start_time = time;
  status.last_reconcile_time = time;
  status.tilewright.restarts = {.program = 1, .infrastructure = 2, .out_of_memory = 3};
  object["status"] = api::to_json(status);
  const HttpResponse answer = admin().put(kPath + "/master-and-worker/status", object);
  ASSERT_EQ(answer.status, 200) << answer.message();
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob(answer.json());
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  // Kubeflow's CRD drops the operator's own state; a condition holds it there.
  if (is_kubeflows()) status.tilewright = {};
  EXPECT_EQ(decoded.job.status, status) << answer.body;
  const CommandResult table = control_plane().kubectl({"get", "pytorchjobs"});
  EXPECT_THAT(table.output,
              ::testing::ContainsRegex("NAME +STATE +AGE\nmaster-and-worker +Running +[0-9]+s\n"));
  const json scale = admin().get(kPath + "/master-and-worker/scale").json();
  EXPECT_EQ(scale["spec"]["replicas"], 1);
  EXPECT_EQ(scale["status"]["replicas"], 1);
  EXPECT_EQ(scale["status"]["selector"], "training.kubeflow.org/job-name=a");
  const CommandResult scaled =
      control_plane().kubectl({"scale", "pytorchjob/master-and-worker", "--replicas=3"});
  EXPECT_EQ(scaled.exit_code, 0) << scaled.error;
  EXPECT_EQ(admin()
                .get(kPath + "/master-and-worker")
                .json()["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"],
            3);
}

// Kubeflow's documentation says that managedBy and queue are immutable; its webhook compares
// managedBy with itself.
TEST_F(PyTorchJobCrd, ForbidsChangesOfTheQueueAndTheManager) {
  json object = example_jobs()[0];
  object["spec"]["runPolicy"] = {{"managedBy", "kubeflow.org/training-operator"},
                                 {"schedulingPolicy", {{"queue", "a"}}}};
  created(object);
  const auto change = [&](const json& policy) {
    return admin().merge_patch(kPath + "/master-and-worker", {{"spec", {{"runPolicy", policy}}}});
  };
  EXPECT_EQ(change({{"schedulingPolicy", {{"queue", "b"}}}}).status, 422);
  EXPECT_EQ(change({{"suspend", true}}).status, 200);
  if (is_kubeflows()) return;
  for (const json& manager : {json("tilewright.dev/operator"), json(nullptr)}) {
    const HttpResponse answer = change({{"managedBy", manager}});
    EXPECT_EQ(answer.status, 422) << manager;
    EXPECT_THAT(answer.message(), HasSubstr("an operator cannot take over the job of another"));
  }
}

}  // namespace
}  // namespace tilewright::testing
