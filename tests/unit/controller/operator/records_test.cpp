// Tests of the cached records: they contain what reconciling needs and nothing else.
#include "controller/operator/records.h"

#include <gmock/gmock.h>

#include "common/contract/labels.h"
#include "common/json/timestamp.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/client/response_json.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A response of the API server, with a status and with fields that the operator does not use.
json object() {
  api::TrainJob job = api::testing::decode_manifest(api::testing::kManifest).job;
  job.metadata.namespace_name = "ns";
  job.metadata.uid = "job-uid";
  job.metadata.resource_version = "17";
  job.metadata.generation = 3;
  job.metadata.creation_timestamp = parse_timestamp("2026-01-31T23:59:59Z");
  job.metadata.deletion_timestamp = parse_timestamp("2026-02-01T00:00:00Z");
  job.status.phase = api::Phase::kRunning;
  job.status.restarts.program = 2;
  job.status.counted_pods = {"pod-uid"};
  job.status.nominal_workers = 2;
  api::FailureRecord failure;
  failure.pod = "mrpc-worker-1";
  failure.pod_uid = "pod-uid";
  failure.exit_code = 1;
  failure.last_lines = {"größer", "than 7-bit"};
  job.status.failures = {failure};
  json made = api::to_json(job);
  made["status"] = api::to_json(job.status);
  made["metadata"]["labels"] = {{"team", "a"}};
  made["metadata"]["annotations"] = {
      {"kubectl.kubernetes.io/last-applied-configuration", std::string(5000, 'x')}};
  made["metadata"]["managedFields"] = {{{"manager", std::string(5000, 'x')}}};
  return made;
}

TEST(JobRecord, KeepsEveryFieldReconcilingNeeds) {
  const json whole = object();
  const DecodedJob decoded = decode(tree_of(record_of_job(whole)));
  EXPECT_THAT(decoded.errors, IsEmpty());

  api::TrainJob expected = api::decode_object(whole).job;
  api::apply_defaults(expected);
  expected.metadata.labels.clear();
  expected.metadata.annotations.clear();
  EXPECT_EQ(decoded.job.metadata, expected.metadata);
  EXPECT_EQ(decoded.job.spec, expected.spec);
  EXPECT_EQ(decoded.job.status, expected.status);
  EXPECT_EQ(decoded.job.status.failures.at(0).last_lines.at(0), "größer");
  EXPECT_EQ(decoded.status, whole["status"]) << "the base of status patches";
}

TEST(JobRecord, DropsFieldsReconcilingDoesNotUse) {
  const json whole = object();
  const JobRecord record = record_of_job(whole);
  EXPECT_EQ(record.phase, "Running");
  const json kept = json::from_cbor(record.cbor);
  EXPECT_FALSE(kept["metadata"].contains("managedFields"));
  EXPECT_FALSE(kept["metadata"].contains("annotations"));
  EXPECT_LT(record.cbor.size(), whole.dump().size() / 4);
  EXPECT_EQ(record.cbor.capacity(), record.cbor.size());
}

TEST(JobRecord, DetectsChangesOtherThanTheStatus) {
  json whole = object();
  whole["metadata"].erase("deletionTimestamp");
  whole["metadata"]["generation"] = 3;
  const JobRecord::SpecVersion before = record_of_job(whole).spec_version;
  whole["status"]["phase"] = "Failed";
  whole["metadata"]["resourceVersion"] = "another";
  EXPECT_EQ(record_of_job(whole).spec_version, before);
  json edited = whole;
  edited["metadata"]["generation"] = 4;
  EXPECT_NE(record_of_job(edited).spec_version, before);
  whole["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_NE(record_of_job(whole).spec_version, before);
}

TEST(JobRecord, KeepsTheJobResultsForTheMetrics) {
  json whole = object();
  whole["status"]["restarts"] = {
      {"program", 2}, {"infrastructure", 3}, {"outOfMemory", 1}, {"total", 6}};
  whole["status"]["progress"] = {
      {"step", 20},
      {"metrics", {{"eval_accuracy", 0.875}, {"eval_f1", 1}, {"else", 7}, {"eval_odd", "x"}}}};
  const auto results = record_of_job(whole).results;
  ASSERT_TRUE(results);
  EXPECT_EQ(results->restarts, (api::RestartCounts{2, 3, 1}));
  EXPECT_EQ(results->evaluation, (std::map<std::string, double>{{"accuracy", 0.875}, {"f1", 1}}));
}

TEST(JobRecord, HasNoResultsForAJobThatHasNotStarted) {
  json whole = object();
  whole["status"].erase("nominalWorkers");
  EXPECT_FALSE(record_of_job(whole).results);
  whole.erase("status");
  EXPECT_FALSE(record_of_job(whole).results);
}

TEST(JobRecord, KeepsTheTimeOfAFailureForTheMetrics) {
  json whole = object();
  EXPECT_FALSE(record_of_job(whole).failed_at);
  whole["status"]["completionTime"] = "2026-02-01T00:00:00Z";
  for (const auto& [phase, time] : {std::pair{"Succeeded", std::optional<WallTime>()},
                                    std::pair{"Failed", parse_timestamp("2026-02-01T00:00:00Z")}}) {
    whole["status"]["phase"] = phase;
    EXPECT_EQ(record_of_job(whole).failed_at, time) << phase;
  }
}

TEST(JobRecord, HandlesAJobWithoutAStatus) {
  json whole = object();
  whole.erase("status");
  const JobRecord record = record_of_job(whole);
  EXPECT_EQ(record.phase, "");
  const DecodedJob decoded = decode(tree_of(record));
  EXPECT_THAT(decoded.errors, IsEmpty());
  EXPECT_EQ(decoded.job.status, api::TrainJobStatus());
  EXPECT_EQ(decoded.status, json::object());
}

TEST(JobRecord, MakesEveryJobAGangOfTheOperatorsGangScheduler) {
  json tree = tree_of(record_of_job(object()));
  EXPECT_FALSE(decode(tree).job.spec.run_policy.scheduling_policy);
  DecodedJob decoded = decode(tree, JobKind::kTrainJob, "volcano");
  EXPECT_TRUE(decoded.job.spec.run_policy.scheduling_policy);
  EXPECT_THAT(decoded.warnings, IsEmpty());
  tree["spec"]["worker"]["schedulerName"] = "other";
  decoded = decode(tree, JobKind::kTrainJob, "volcano");
  ASSERT_THAT(decoded.warnings, SizeIs(1));
  EXPECT_THAT(decoded.warnings[0].sentence(), HasSubstr("the gang scheduler of the operator"));

  tree = json::parse(R"({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
      "metadata": {"name": "qa", "uid": "job-uid"}, "spec": {
      "pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": {
          "schedulerName": "other", "containers": [{"name": "pytorch", "image": "i"}]}}}}}})");
  decoded = decode(tree, JobKind::kPyTorchJob, "volcano");
  EXPECT_THAT(decoded.errors, IsEmpty());
  EXPECT_TRUE(decoded.pytorch->spec.run_policy.scheduling_policy);
  ASSERT_TRUE(decoded.job.spec.run_policy.scheduling_policy);
  EXPECT_EQ(decoded.job.spec.run_policy.scheduling_policy->min_available, 3) << "all pods";
  ASSERT_THAT(decoded.warnings, SizeIs(1));
  EXPECT_THAT(decoded.warnings[0].sentence(), HasSubstr("the gang scheduler of the operator"));
}

TEST(JobRecord, ReportsTheErrorsOfAnInvalidJob) {
  struct Case {
    const char* place;
    json value;
    const char* sentence;
  };
  for (const Case& wrong : {
           Case{"/spec/worker/replicas", "two", "spec.worker.replicas"},
           Case{"/spec/worker/replicas", 9, "spec.worker.replicas"},  // above maxReplicas
           Case{"/spec/trainer/task", "no such task", "spec.trainer.task"},
           // Valid for `tilewright up` but not in a cluster.
           Case{"/spec/volumes/0", json{{"name", "models"}, {"local", "x"}}, "spec.volumes[0]"},
           Case{"/spec", 7, "spec"},
           Case{"/spec", kube::kTooDeep, "nested more than 128 levels deep"},
       }) {
    json whole = object();
    whole[json::json_pointer(wrong.place)] = wrong.value;
    const DecodedJob decoded = decode(tree_of(record_of_job(whole)));
    ASSERT_FALSE(decoded.errors.empty()) << wrong.place;
    EXPECT_THAT(decoded.errors.front().sentence(), HasSubstr(wrong.sentence));
    EXPECT_EQ(decoded.job.metadata.uid, "job-uid") << "needed to write its conditions";
    EXPECT_EQ(decoded.status, whole["status"]);
  }
}

// 47 jobs of 1.4 MB would fill a quarter of the operator's memory.
TEST(JobRecord, KeepsNoSpecThatIsTooLarge) {
  json whole = object();
  whole["spec"]["trainer"]["args"] = {std::string(1'400'000, 'x')};
  const JobRecord record = record_of_job(whole);
  EXPECT_LT(record.cbor.size(), 10'000U);
  const DecodedJob decoded = decode(tree_of(record));
  ASSERT_FALSE(decoded.errors.empty());
  EXPECT_EQ(decoded.errors.front().sentence(),
            "spec: found the string \"(a job of more than 256 KiB)\", expected an object");
  EXPECT_EQ(decoded.job.metadata.uid, "job-uid");
  EXPECT_EQ(decoded.status, whole["status"]);
}

TEST(JobRecord, HandlesAnEmptyObject) {
  for (const json& odd : {json::object(), json{{"metadata", 7}, {"status", "x"}}, json(7)}) {
    const JobRecord record = record_of_job(odd);
    EXPECT_EQ(record.phase, "");
    EXPECT_FALSE(decode(tree_of(record)).errors.empty()) << odd;
  }
}

json pod() {
  return {
      {"metadata",
       {{"name", "mrpc-worker-1"},
        {"uid", "pod-uid"},
        {"labels",
         {{labels::kWorkerIndex, "1"}, {labels::kJobUid, "job-uid"}, {labels::kJobName, "mrpc"}}},
        {"ownerReferences",
         {{{"apiVersion", kApiVersion},
           {"kind", "TrainJob"},
           {"name", "mrpc"},
           {"uid", "job-uid"},
           {"controller", true}}}}}},
      {"status", {{"phase", "Running"}}}};
}

TEST(PodRecord, BelongsToTheJobOfItsOwnerReference) {
  const PodRecord record = record_of_pod(pod());
  EXPECT_EQ(record.job_uid, "job-uid");
  EXPECT_EQ(record.job_name, "mrpc");
  EXPECT_EQ(record.worker.index, 1);
  EXPECT_EQ(record.worker.uid, "pod-uid");
  EXPECT_EQ(record.worker.phase, policy::WorkerPhase::kRunning);
}

TEST(PodRecord, HasNoJobWithoutAControllerOwnerReference) {
  const auto owned_by = [](const char* member, const json& value) {
    json changed = pod();
    changed["metadata"]["ownerReferences"][0][member] = value;
    return record_of_pod(changed).job_uid;
  };
  EXPECT_EQ(owned_by("controller", false), "");
  EXPECT_EQ(owned_by("controller", nullptr), "");
  EXPECT_EQ(owned_by("kind", "PyTorchJob"), "");
  EXPECT_EQ(owned_by("apiVersion", "another.dev/v1alpha1"), "");
  json none = pod();
  none["metadata"].erase("ownerReferences");
  none["metadata"]["labels"][labels::kJobUid] = "job-uid";
  EXPECT_EQ(record_of_pod(none).job_uid, "");
  json no_index = pod();
  no_index["metadata"]["labels"].erase(labels::kWorkerIndex);
  EXPECT_EQ(record_of_pod(no_index).job_uid, "");
}

TEST(PodRecord, HasNoJobIfItsLabelsNameAnotherOne) {
  for (const char* label : {labels::kJobUid, labels::kJobName}) {
    json changed = pod();
    changed["metadata"]["labels"][label] = "another";
    EXPECT_EQ(record_of_pod(changed).job_uid, "") << label;
    changed["metadata"]["labels"].erase(label);
    EXPECT_EQ(record_of_pod(changed).job_uid, "") << label;
    EXPECT_EQ(record_of_pod(changed).job_name, "") << label;
  }
}

TEST(PodRecord, FindsItsJobAmongSeveralOwners) {
  json several = pod();
  json& owners = several["metadata"]["ownerReferences"];
  owners.insert(owners.begin(), {{"apiVersion", "v1"}, {"kind", "Node"}, {"uid", "x"}});
  EXPECT_EQ(record_of_pod(several).job_uid, "job-uid");
}

json pytorch_pod() {
  json changed = pod();
  json& owner = changed["metadata"]["ownerReferences"][0];
  owner["kind"] = kPyTorchJobKind;
  owner["apiVersion"] = kPyTorchJobApiVersion;
  changed["metadata"]["annotations"] = {{annotations::kTcpStore, "10.96.0.7:29401"}};
  changed["status"]["podIP"] = "10.0.1.5";
  changed["status"]["podIPs"] = {{{"ip", "10.0.1.5"}}, {{"ip", "fd00::5"}}};
  return changed;
}

TEST(PodRecord, HasTheAddressesOfAPyTorchJobsPod) {
  const PodRecord record = record_of_pod(kube::parse_object(pytorch_pod().dump(), keep_pod_field));
  EXPECT_EQ(record.addresses, (std::vector<std::string>{"10.0.1.5", "fd00::5"}));
  EXPECT_TRUE(record.uses_tcpstore);
  json elsewhere = pytorch_pod();
  elsewhere["metadata"].erase("annotations");
  EXPECT_FALSE(record_of_pod(elsewhere).uses_tcpstore);
  EXPECT_TRUE(record_of_pod(pod()).addresses.empty());
}

TEST(PodRecord, HasNoAddressThatOthersMayHave) {
  json on_host = pytorch_pod();
  on_host["spec"] = {{"hostNetwork", true}, {"nodeName", "node-1"}};
  EXPECT_TRUE(record_of_pod(kube::parse_object(on_host.dump(), keep_pod_field)).addresses.empty());
  for (const char* phase : {"Succeeded", "Failed"}) {
    json ended = pytorch_pod();
    ended["status"]["phase"] = phase;
    EXPECT_TRUE(record_of_pod(ended).addresses.empty()) << phase;
  }
  json of_another_job = pytorch_pod();
  of_another_job["metadata"]["labels"][labels::kJobUid] = "another";
  EXPECT_TRUE(record_of_pod(of_another_job).addresses.empty());
}

TEST(PodRecord, NeedsOnlyTheFilteredFieldsOfAPod) {
  json whole = pod();
  whole["metadata"]["annotations"] = {{annotations::kJobGeneration, "4"}};
  whole["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z";
  whole["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z";
  whole["spec"] = {{"nodeName", "node-1"}, {"containers", {{{"name", kWorkerContainer}}}}};
  whole["status"] = {
      {"phase", "Failed"},
      {"reason", "Evicted"},
      {"message", "the node was low on memory"},
      {"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
      {"containerStatuses",
       {{{"name", kWorkerContainer},
         {"state", {{"terminated", {{"exitCode", 7}, {"finishedAt", "2026-01-01T00:01:00Z"}}}}}}}}};
  const json wanted = kube::parse_object(whole.dump(), keep_pod_field);
  EXPECT_FALSE(wanted["spec"].contains("containers"));
  for (const json& tree : {whole, wanted}) {
    const PodRecord record = record_of_pod(tree);
    EXPECT_EQ(record.job_uid, "job-uid");
    const policy::Worker& worker = record.worker;
    EXPECT_EQ(worker.index, 1);
    EXPECT_EQ(worker.generation, 4);
    EXPECT_EQ(worker.node, "node-1");
    EXPECT_TRUE(worker.created && worker.terminating && worker.ready && worker.finished);
    EXPECT_EQ(worker.phase, policy::WorkerPhase::kFailed);
    EXPECT_EQ(worker.exit_code, 7);
    EXPECT_EQ(worker.reason, "Evicted");
    EXPECT_EQ(worker.message, "the node was low on memory");
  }
}

TEST(NodeRecord, NeedsOnlyTheFilteredFieldsOfANode) {
  const json whole = {{"metadata", {{"name", "n"}, {"labels", {{"pool", "cpu"}}}}},
                      {"spec", {{"unschedulable", true}}},
                      {"status",
                       {{"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
                        {"allocatable", {{"cpu", "4"}}},
                        {"images", {{{"names", {"many of them"}}}}}}}};
  const json wanted = kube::parse_object(whole.dump(), keep_node_field);
  EXPECT_FALSE(wanted["status"].contains("images"));
  EXPECT_EQ(record_of_node(wanted).node, record_of_node(whole).node);
  EXPECT_EQ(record_of_node(wanted).state, policy::NodeState::kReady);
  EXPECT_TRUE(record_of_node(wanted).node.cordoned);
  EXPECT_EQ(record_of_node(wanted).node.allocatable.size(), 1U);
}

TEST(NodeRecord, IsReadyOnlyWithTheReadyCondition) {
  const auto ready = [](const json& conditions) {
    return record_of_node({{"status", {{"conditions", conditions}}}}).state ==
           policy::NodeState::kReady;
  };
  EXPECT_TRUE(ready({{{"type", "Ready"}, {"status", "True"}}}));
  EXPECT_FALSE(ready({{{"type", "Ready"}, {"status", "False"}}}));
  EXPECT_FALSE(ready({{{"type", "Ready"}, {"status", "Unknown"}}}));
  EXPECT_FALSE(ready({{{"type", "MemoryPressure"}, {"status", "True"}}}));
  EXPECT_NE(record_of_node(json::object()).state, policy::NodeState::kReady);
}

TEST(NodeRecord, IsUnreachableIfTheReadyConditionIsUnknown) {
  const auto unreachable = [](const char* status) {
    return record_of_node({{"status", {{"conditions", {{{"type", "Ready"}, {"status", status}}}}}}})
               .state == policy::NodeState::kUnreachable;
  };
  EXPECT_TRUE(unreachable("Unknown"));
  EXPECT_FALSE(unreachable("False"));
  EXPECT_FALSE(unreachable("True"));
  EXPECT_NE(record_of_node(json::object()).state, policy::NodeState::kUnreachable)
      << "its kubelet has not reported yet";
}

TEST(JobKey, ContainsNamespaceAndName) {
  EXPECT_EQ(key_of("ns", "mrpc"), "ns/mrpc");
  EXPECT_EQ(parse_key("ns/mrpc").namespace_name, "ns");
  EXPECT_EQ(parse_key("ns/mrpc").name, "mrpc");
}

}  // namespace
}  // namespace tilewright::controller
