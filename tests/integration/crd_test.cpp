// The CRD on a real API server: what it takes, refuses, fills in, lets change and shows; and that
// it judges as controller/api does.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "common/contract/training_flags.h"
#include "controller/api/document.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "tests/support/cluster_test.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::testing {
namespace {

using api::testing::kManifest;
using api::testing::with;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const std::string kJobs = "/apis/tilewright.dev/v1alpha1/namespaces/default/trainjobs";
// As kubectl asks: an unknown field is an error.
const std::string kTry = kJobs + "?fieldValidation=Strict&dryRun=All";

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  EXPECT_FALSE(out.str().empty()) << path;
  return out.str();
}

std::filesystem::path definition_file() {
  return source_dir() / "crds/trainjobs.tilewright.dev.yaml";
}

// As kubectl would send it.
json tree_of(const std::string& yaml) {
  const api::Document document = api::read_yaml(yaml);
  EXPECT_TRUE(document.errors.empty()) << api::sentences(document.errors);
  return document.tree;
}

// Why controller/api refuses the manifest for a cluster; empty if it does not.
std::string our_refusal(const std::string& manifest) {
  const auto checked = api::check_manifest(manifest, "job.yaml", api::Target::kCluster);
  return checked.ok() ? "" : checked.error().message;
}

class Crd : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ready_ = admin().get(std::string(kDefinitions) + "/trainjobs.tilewright.dev").ok();
    if (ready_) return;
    const HttpResponse made = admin().post(kDefinitions, tree_of(read(definition_file())));
    ASSERT_EQ(made.status, 201) << made.message();
    const CommandOutcome waited = control_plane().kubectl(
        {"wait", "crd/trainjobs.tilewright.dev", "--for=condition=Established", "--timeout=60s"});
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
    ready_ = true;
  }

  void TearDown() override {
    if (ready_) admin().remove(kJobs);
    ClusterTest::TearDown();
  }

  static HttpsClient& admin() { return control_plane().admin(); }
  static json created(const std::string& manifest = kManifest) {
    const HttpResponse made = admin().post(kJobs, tree_of(manifest));
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }

  static HttpResponse changed(const json& patch, const std::string& name = "mrpc") {
    return admin().merge_patch(kJobs + "/" + name, patch);
  }

 private:
  bool ready_ = false;
};

TEST_F(Crd, TakesTheExampleAndFillsInWhatValidateDoes) {
  const std::string file = source_dir() / "examples/trainjob.yaml";
  const CommandOutcome made =
      control_plane().kubectl({"create", "-f", file, "-o", "jsonpath={.metadata.name}"});
  ASSERT_EQ(made.exit_code, 0) << made.error;
  EXPECT_THAT(made.output, ::testing::MatchesRegex("paraphrase-[a-z0-9]{5}"));
  const HttpResponse answer = admin().get(kJobs + "/" + made.output);
  ASSERT_EQ(answer.status, 200) << answer.message();
  api::Decoded theirs = api::decode_object(answer.json(), true);
  ASSERT_TRUE(theirs.ok()) << api::sentences(theirs.errors);
  const auto ours = api::check_manifest(read(file), file, api::Target::kCluster);
  ASSERT_TRUE(ours.ok()) << ours.error().message;
  EXPECT_EQ(theirs.job.spec, ours->job.spec) << api::to_json(theirs.job) << "\n"
                                             << api::to_json(ours->job);
}

TEST_F(Crd, FillsInAManifestThatSaysAlmostNothing) {
  const std::string manifest = R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: least}
spec:
  trainer: {task: sst2, model: "v:m", data: "v:d", output: "v:o"}
  volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]
)";
  api::Decoded theirs = api::decode_object(created(manifest), true);
  ASSERT_TRUE(theirs.ok()) << api::sentences(theirs.errors);
  const auto ours = api::check_manifest(manifest, "", api::Target::kCluster);
  ASSERT_TRUE(ours.ok()) << ours.error().message;
  api::ElasticPolicy& elastic = theirs.job.spec.elastic_policy;
  // What hangs on other fields stays for the operator.
  EXPECT_FALSE(elastic.min_replicas || elastic.max_replicas || elastic.max_restarts);
  elastic = ours->job.spec.elastic_policy;
  EXPECT_EQ(theirs.job.spec, ours->job.spec);
}

struct Refused {
  const char* place;
  const char* replacement;
  const char* field;
  const char* sentence;
  bool ours_too = true;  // controller/api says it in the same words
};

TEST_F(Crd, RefusesInASentenceWhatValidateRefuses) {
  const Refused cases[] = {
      {"  name: mrpc", "  name: 2mrpc", "metadata.name",
       "found 2mrpc, expected lower-case letters, digits and '-', a letter first and no '-' last"},
      {"  name: mrpc", "  name: mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
       "metadata.name",
       "found 55 letters, expected at most 54, so that the pod NAME-worker-3 has a name of at most "
       "63"},
      {"minReplicas: 1", "minReplicas: 5", "spec.elasticPolicy.minReplicas",
       "found 5, expected at most 4, as spec.elasticPolicy.maxReplicas says"},
      {"minReplicas: 1", "minReplicas: 3", "spec.elasticPolicy.minReplicas",
       "found 3, expected at most 2, as spec.worker.replicas says"},
      {"maxReplicas: 4", "maxReplicas: 1", "spec.elasticPolicy.maxReplicas",
       "found 1, expected at least 2, as spec.worker.replicas says"},
      {"replicas: 2", "replicas: 0", "spec.worker.replicas",
       "found 0, expected a whole number from 1 to 1000"},
      {"maxReplicas: 4", "maxReplicas: 1001", "spec.elasticPolicy.maxReplicas",
       "found 1001, expected a whole number from 1 to 1000"},
      {"nprocPerNode: 1", "nprocPerNode: 0", "spec.nprocPerNode",
       "found 0, expected a whole number from 1 to 256"},
      {"rdzvBackend: c10d", "rdzvBackend: etcd", "spec.elasticPolicy.rdzvBackend",
       "supported values: \"c10d\"", false},
      {"maxRestarts: 3", "maxRestarts: -1", "spec.elasticPolicy.maxRestarts",
       "found -1, expected a whole number from 0 to 1000000"},
      {"maxRestarts: 3", "maxRestarts: three", "spec.elasticPolicy.maxRestarts",
       "must be of type integer", false},
      {"learning_rate: 1e-4", "virtual_shards: 64", "spec.trainer.virtual_shards",
       "found 64, expected no more than the global batch of 32 examples "
       "(per_device_train_batch_size 16 x 2 processes x gradient_accumulation_steps 1)"},
      {"learning_rate: 1e-4", "virtual_shards: 12", "spec.trainer.virtual_shards",
       "found 12, expected a power of two"},
      {"learning_rate: 1e-4", "virtual_shards: 2", "spec.elasticPolicy.maxReplicas",
       "found 4 x nprocPerNode 1 = 4 processes, expected at most 2, the number of "
       "spec.trainer.virtual_shards"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: 1",
       "spec.elasticPolicy.maxReplicas",
       "found 4 x nprocPerNode 1 = 4 processes, expected at most 2, the largest power of two "
       "within the global batch of 2 examples (per_device_train_batch_size 1 x 2 processes x "
       "gradient_accumulation_steps 1)"},
      {"  nprocPerNode: 1\n  elasticPolicy:\n    rdzvBackend: c10d\n    minReplicas: 1\n    "
       "maxReplicas: 4",
       "  nprocPerNode: 256\n  elasticPolicy:\n    maxReplicas: 5",
       "spec.elasticPolicy.maxReplicas",
       "found 1280 processes, expected at most 1024 (1024 virtual shards)"},
      {"cleanPodPolicy: Running", "backoffLimit: 5", "spec.runPolicy.backoffLimit",
       "found 5, expected 3, as spec.elasticPolicy.maxRestarts says, or only one of the two"},
      {"cleanPodPolicy: Running", "cleanPodPolicy: Some", "spec.runPolicy.cleanPodPolicy",
       "supported values: \"None\", \"Running\", \"All\"", false},
      {"cleanPodPolicy: Running", "activeDeadlineSeconds: 0",
       "spec.runPolicy.activeDeadlineSeconds",
       "found 0, expected a whole number from 1 to 316224000"},
      {"cleanPodPolicy: Running", "ttlSecondsAfterFinished: -1",
       "spec.runPolicy.ttlSecondsAfterFinished",
       "found -1, expected a whole number from 0 to 316224000"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 5}",
       "spec.runPolicy.schedulingPolicy.minAvailable",
       "found 5, expected a whole number from 1 to 4"},
      {"task: mrpc", "task: squad", "spec.trainer.task",
       "supported values: \"cola\", \"mrpc\", \"rte\", \"sst2\"", false},
      {"    task: mrpc\n", "", "spec.trainer.task",
       "found nothing, expected one of cola, mrpc, rte, sst2"},
      {"    data: data:MRPC\n", "", "spec.trainer.data",
       "found nothing, expected VOLUME:relative/path"},
      {"data: data:MRPC", "data: /data/MRPC", "spec.trainer.data",
       "found /data/MRPC, expected VOLUME:relative/path"},
      {"data: data:MRPC", "data: dta:MRPC", "spec.trainer.data",
       "found the volume dta, expected one of spec.volumes ("},
      {"data: data:MRPC", "data: data:/MRPC", "spec.trainer.data",
       "found data:/MRPC, expected a path relative to the volume"},
      {"data: data:MRPC", "data: data:a/../../b", "spec.trainer.data",
       "found data:a/../../b, expected a path that stays in its volume, without '..'"},
      {"data: data:MRPC", "data: data:MRPC\n    data_dir: data:RTE", "spec.trainer.data_dir",
       "found data:RTE, expected data:MRPC, which this field's other name says, or only one of the "
       "two"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:$(JOB)", "spec.trainer.output",
       "which no plain value of spec.worker.env sets, expected a variable such as "
       "$(TILEWRIGHT_JOB_NAME)"},
      {"    data: data:MRPC", "    data_dir: elsewhere:MRPC", "spec.trainer.data",
       "found the volume elsewhere, expected one of spec.volumes ("},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:.", "spec.trainer.output",
       "found output:., expected a folder on the volume, not the volume itself"},
      {"{claimName: tilewright-output}", "{claimName: tilewright-output, readOnly: true}",
       "spec.trainer.output",
       "found the volume output, which is read-only, expected one that can be written"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: elsewhere:x",
       "spec.trainer.resume_from_checkpoint",
       "found the volume elsewhere, expected one of spec.volumes ("},
      {"learning_rate: 1e-4", "args: [\"--seed=1\"]", "spec.trainer.args[0]",
       "found --seed, expected the field spec.trainer.seed"},
      {"learning_rate: 1e-4", "args: [\"--max_workers\", \"3\"]", "spec.trainer.args[0]",
       "found --max_workers, expected nothing: the runtime sets it"},
      {"learning_rate: 1e-4", "do_train: false\n    do_eval: false", "spec.trainer.do_train",
       "found do_train and do_eval false, expected at least one of them true"},
      {"learning_rate: 1e-4", "lerning_rate: 1e-4", "lerning_rate", "unknown field", false},
      {"sharedMemory: 64Mi", "sharedMemory: 2Gi", "spec.worker.sharedMemory",
       "found 2Gi, expected less than 2Gi, as spec.worker.resources.memory says: pages of /dev/shm "
       "count against it"},
      {"memory: 2Gi", "memory: 2", "spec.worker.resources", "expected at least 128Mi"},
      {"memory: 2Gi", "memory: two", "spec.worker.resources[memory]",
       "expected a quantity such as 2, 500m or 2Gi"},
      {"cpu: 1", "cpu: 0", "spec.worker.resources[cpu]", "found 0, expected more than nothing"},
      {"memory: 2Gi", "memroy: 2Gi", "spec.worker.resources", "memroy"},
      {"sharedMemory: 64Mi", "env: [{name: RANK, value: \"0\"}]", "spec.worker.env[0].name",
       "found RANK, expected a name that the runtime does not set itself"},
      {"sharedMemory: 64Mi", "env: [{name: A}, {name: A}]", "spec.worker.env[1]", "Duplicate value",
       false},
      {"sharedMemory: 64Mi", "env: [{name: a=b}]", "spec.worker.env[0].name",
       "found a=b, expected a variable's name"},
      {"sharedMemory: 64Mi", "env: [{name: A, value: b, valueFrom: {}}]", "spec.worker.env[0]",
       "found value and valueFrom, expected one of them"},
      {"sharedMemory: 64Mi", "runAsUser: 0", "spec.worker.runAsUser",
       "found 0, expected a whole number from 1 to 2147483647"},
      {"sharedMemory: 64Mi", "nodeSelector: {a b: c}", "spec.worker.nodeSelector",
       "expected a node's label and its value"},
      {"sharedMemory: 64Mi", "serviceAccountName: My_Account", "spec.worker.serviceAccountName",
       "found My_Account, expected lower-case letters, digits, '-' and '.'"},
      {"image: tilewright-worker:0.1.0", "image: my image", "spec.worker.image",
       "found my image, expected an image's name without blanks"},
      {"restartPolicy: OnFailure", "restartPolicy: Sometimes", "spec.worker.restartPolicy",
       "supported values: \"Always\", \"OnFailure\", \"Never\", \"ExitCode\"", false},
      {"sharedMemory: 64Mi", "terminationGracePeriodSeconds: -1",
       "spec.worker.terminationGracePeriodSeconds",
       "found -1, expected a whole number from 0 to 86400"},
      {"- name: data", "- name: Data", "spec.volumes[1].name",
       "found Data, expected up to 63 lower-case letters, digits and '-'"},
      {"- name: data", "- name: tilewright-data", "spec.volumes[1].name",
       "found tilewright-data, expected a name that does not begin with tilewright-, as the "
       "operator's own volumes do"},
      {"- name: data", "- name: data\n      emptyDir: {}", "spec.volumes[1]",
       "expected one volume source"},
      {"      persistentVolumeClaim: {claimName: tilewright-data}\n", "", "spec.volumes[1]",
       "found no volume source for data, expected one such as persistentVolumeClaim"},
      {"persistentVolumeClaim: {claimName: tilewright-data}", "hostPath: {path: /data}",
       "spec.volumes[1].hostPath",
       "found hostPath, which restricted Pod Security forbids, expected a persistentVolumeClaim"},
      {"{claimName: tilewright-data}", "{claimName: My_Claim}",
       "spec.volumes[1].persistentVolumeClaim.claimName",
       "found My_Claim, expected a claim's name"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {hostNetwork: true}}",
       "spec.worker.podTemplate.spec.hostNetwork",
       "found true, which restricted Pod Security forbids, expected false"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, securityContext: {privileged: true}}]}}",
       "spec.worker.podTemplate.spec.containers[0].securityContext.privileged",
       "found true, which restricted Pod Security forbids, expected false"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {securityContext: {runAsUser: 0}}}",
       "spec.worker.podTemplate.spec.securityContext.runAsUser",
       "found 0, which restricted Pod Security forbids, expected a user other than root"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {initContainers: [{name: i, securityContext: {capabilities: {add: "
       "[SYS_ADMIN]}}}]}}",
       "spec.worker.podTemplate.spec.initContainers[0].securityContext.capabilities.add[0]",
       "which restricted Pod Security forbids, expected no capability"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {volumes: [{name: h, hostPath: {path: /}}]}}",
       "spec.worker.podTemplate.spec.volumes[0].hostPath",
       "found hostPath, which restricted Pod Security forbids, expected a persistentVolumeClaim"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {restartPolicy: Always}}",
       "spec.worker.podTemplate.spec.restartPolicy",
       "found a value, expected nothing: spec.worker.restartPolicy says it"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {containers: [{name: worker, image: x}]}}",
       "spec.worker.podTemplate.spec.containers[0].image",
       "found a value, expected nothing: spec.worker.image says it"},
  };
  for (const Refused& bad : cases) {
    const std::string manifest = with(bad.place, bad.replacement);
    const HttpResponse answer = admin().post(kTry, tree_of(manifest));
    EXPECT_FALSE(answer.ok()) << bad.replacement;
    EXPECT_THAT(answer.message(), HasSubstr(bad.field)) << bad.replacement;
    EXPECT_THAT(answer.message(), HasSubstr(bad.sentence)) << bad.replacement;
    if (bad.ours_too) {
      EXPECT_THAT(our_refusal(manifest), HasSubstr(bad.sentence)) << bad.replacement;
    } else {
      EXPECT_NE(our_refusal(manifest), "") << bad.replacement;
    }
  }
  EXPECT_GE(std::size(cases), 20u);
}

TEST_F(Crd, TakesWhatValidateTakes) {
  const std::pair<const char*, const char*> cases[] = {
      {"learning_rate: 1e-4", "learning_rate: 0"},
      {"learning_rate: 1e-4", "args: [\"--a_newer_flag=$(HOME)\", \"and a word\"]"},
      {"learning_rate: 1e-4", "task_name: mrpc\n    output_dir: output:$(TILEWRIGHT_JOB_NAME)"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: output:old/checkpoint-5"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: \"\""},
      {"    model: models:minilm", "    model_name_or_path: models:minilm"},
      {"data: data:MRPC", "data: \"data:\""},
      {"data: data:MRPC", "data: data:$$(MRPC)"},
      {"data: data:MRPC", "data: data:a..b/..."},
      {"sharedMemory: 64Mi", "env: [{name: A, value: a}, {name: B, value: $(A)}]"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:$(TILEWRIGHT_JOB_UID)/$(TILEWRIGHT_JOB_UID)/$$(X)"},
      {"sharedMemory: 64Mi", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"},
      {"memory: 2Gi", "memory: 2Gi\n      example.org/device: 1\n      hugepages-2Mi: 4Mi"},
      {"cpu: 1", "cpu: 1500m"},
      {"sharedMemory: 64Mi",
       "nodeSelector: {example.org/pool: cpu}\n    imagePullSecrets: [{name: "
       "registry}]"},
      {"sharedMemory: 64Mi",
       "tolerations: [{key: a, operator: Exists}]\n    affinity: {nodeAffinity: {}}"},
      {"sharedMemory: 64Mi",
       "podTemplate: {metadata: {annotations: {a: b}}, spec: {priority: 1, containers: [{name: "
       "sidecar, image: x, ports: [{containerPort: 80}]}]}}"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 2, queue: q}"},
      {"    maxRestarts: 3\n  runPolicy:\n    cleanPodPolicy: Running",
       "  runPolicy:\n    backoffLimit: 5\n    suspend: true"},
      {"persistentVolumeClaim: {claimName: tilewright-data}", "configMap: {name: data}"},
  };
  for (const auto& [place, replacement] : cases) {
    const std::string manifest = with(place, replacement);
    EXPECT_EQ(our_refusal(manifest), "") << replacement;
    const HttpResponse answer = admin().post(kTry, tree_of(manifest));
    ASSERT_TRUE(answer.ok()) << replacement << ": " << answer.message();
    // Nothing is lost on the way, of what it knows and of what it keeps as it came.
    const api::Decoded theirs = api::decode_object(answer.json(), true);
    ASSERT_TRUE(theirs.ok()) << api::sentences(theirs.errors);
    api::TrainJob ours = api::decode_manifest(manifest).job;
    EXPECT_EQ(theirs.job.spec.trainer, ours.spec.trainer) << replacement;
    EXPECT_EQ(theirs.job.spec.volumes, ours.spec.volumes) << replacement;
    EXPECT_EQ(theirs.job.spec.worker.env, ours.spec.worker.env) << replacement;
    EXPECT_EQ(theirs.job.spec.worker.pod_template, ours.spec.worker.pod_template) << replacement;
    EXPECT_EQ(theirs.job.spec.worker.tolerations, ours.spec.worker.tolerations) << replacement;
    EXPECT_EQ(theirs.job.spec.worker.affinity, ours.spec.worker.affinity) << replacement;
  }
}

TEST_F(Crd, FollowsVariablesIntoPaths) {
  const std::string named = with("data: data:MRPC", "data: data:$(A)/$(A)/$(B)");
  const auto verdict = [&](const char* env) {
    const std::string manifest = with("sharedMemory: 64Mi", env, named);
    const HttpResponse answer = admin().post(kTry, tree_of(manifest));
    EXPECT_EQ(answer.ok(), our_refusal(manifest).empty()) << env << answer.message();
    return answer.ok();
  };
  EXPECT_TRUE(verdict("env: [{name: A, value: a}, {name: B, value: b}]"));
  EXPECT_FALSE(verdict("env: [{name: A, value: a}]"));
  EXPECT_FALSE(
      verdict("env: [{name: A, value: a}, {name: B, valueFrom: {fieldRef: {fieldPath: x}}}]"));
}

// crds/README.md tells of these.
TEST_F(Crd, DiffersFromValidateWhereItMust) {
  struct Verdicts {
    bool theirs, ours;
    bool operator==(const Verdicts&) const = default;
  };
  const auto judged = [&](const std::string& manifest) {
    return Verdicts{admin().post(kTry, tree_of(manifest)).ok(), our_refusal(manifest).empty()};
  };
  constexpr Verdicts kOnlyTheirs{true, false};
  constexpr Verdicts kOnlyOurs{false, true};
  // What a path becomes with its variables cannot be said in CEL.
  EXPECT_EQ(judged(with("sharedMemory: 64Mi", "env: [{name: UP, value: ..}]",
                        with("data: data:MRPC", "data: data:$(UP)"))),
            kOnlyTheirs);
  // A schema has no type for a number or a text, nor for an object or a text.
  EXPECT_EQ(judged(with("cpu: 1", "cpu: 0.5")), kOnlyOurs);
  EXPECT_EQ(judged(with("sharedMemory: 64Mi", "imagePullSecrets: [registry]")), kOnlyOurs);
  // Bounds, without which rules would cost too much.
  EXPECT_EQ(judged(with("data: data:MRPC", "data: data:" + std::string(1020, 'a'))), kOnlyOurs);
}

// Values at the edges of every flag's range, and beyond them.
TEST_F(Crd, HoldsFlagsToTheTableOfTheContract) {
  int refused = 0;
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.set_by_runtime || flag.name == "task_name" || flag.name == "model_name_or_path" ||
        flag.name == "data_dir" || flag.name == "output_dir" ||
        flag.name == "resume_from_checkpoint") {
      continue;
    }
    std::vector<json> values = {"a text", true, 1, -1, 0, -2};
    if (flag.type == FlagType::kInt) {
      for (const double edge : {flag.minimum, flag.maximum}) {
        const auto whole = static_cast<std::int64_t>(edge);
        values.insert(values.end(), {whole - 1, whole, whole + 1});
      }
    }
    if (flag.type == FlagType::kFloat) {
      for (const double edge : {flag.minimum, flag.maximum}) {
        values.insert(values.end(), {edge, std::nextafter(edge, -1e300),
                                     std::nextafter(edge, 1e300), edge + 0.5});
      }
    }
    for (const std::string_view choice : flag.choices) values.emplace_back(choice);
    if (flag.type == FlagType::kString) values.emplace_back(std::string(5000, 'a'));
    for (const json& value : values) {
      json object =
          tree_of(with("    learning_rate: 1e-4\n    per_device_train_batch_size: 16\n", ""));
      object["spec"]["trainer"][std::string(flag.name)] = value;
      const std::string ours = our_refusal(object.dump());
      const HttpResponse theirs = admin().post(kTry, object);
      EXPECT_EQ(theirs.ok(), ours.empty())
          << flag.name << ": " << value.dump().substr(0, 80)
          << "\nAPI server: " << (theirs.ok() ? "takes it" : theirs.message())
          << "\ncontroller/api: " << ours;
      if (theirs.ok()) continue;
      ++refused;
      EXPECT_THAT(theirs.message(), HasSubstr(flag.name));
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Crd, LetsChangeWhatMayChangeAndNothingElse) {
  created(with("sharedMemory: 64Mi", "env: [{name: A, value: a}]"));
  const std::pair<json, const char*> fixed[] = {
      {{{"nprocPerNode", 2}}, "spec.nprocPerNode"},
      {{{"trainer", {{"learning_rate", 0.5}}}}, "spec.trainer"},
      {{{"trainer", {{"seed", 1}}}}, "spec.trainer"},
      {{{"volumes", json::array({{{"name", "data"}, {"emptyDir", json::object()}}})}},
       "spec.volumes"},
      {{{"worker", {{"env", json::array({{{"name", "A"}, {"value", "b"}}})}}}}, "spec.worker.env"},
      {{{"worker", {{"env", nullptr}}}}, "spec.worker.env"},
      {{{"runPolicy", {{"schedulingPolicy", {{"queue", "q"}}}}}},
       "spec.runPolicy.schedulingPolicy"},
  };
  for (const auto& [change, field] : fixed) {
    const HttpResponse answer = changed({{"spec", change}});
    EXPECT_EQ(answer.status, 422) << change;
    EXPECT_THAT(answer.message(), HasSubstr(field)) << change;
    EXPECT_THAT(answer.message(), HasSubstr(change.contains("nprocPerNode")
                                                ? "found 2, expected 1: this field cannot change"
                                                : "found a change, expected none"))
        << change;
  }
  const json free[] = {
      {{"runPolicy", {{"suspend", true}}}},
      {{"runPolicy", {{"suspend", false}, {"ttlSecondsAfterFinished", 60}}}},
      {{"runPolicy", {{"activeDeadlineSeconds", 60}, {"cleanPodPolicy", "All"}}}},
      {{"elasticPolicy", {{"minReplicas", 2}, {"maxReplicas", 8}, {"maxRestarts", 9}}}},
      {{"worker", {{"replicas", 7}}}},
      {{"worker", {{"image", "other:1"}, {"resources", {{"memory", "3Gi"}}}}}},
      {{"worker", {{"nodeSelector", {{"pool", "a"}}}, {"tolerations", {{{"key", "a"}}}}}}},
      {{"worker", {{"podTemplate", {{"spec", {{"priority", 1}}}}}, {"runAsUser", 7}}}},
  };
  for (const json& change : free) {
    const HttpResponse answer = changed({{"spec", change}});
    EXPECT_EQ(answer.status, 200) << change << ": " << answer.message();
  }
}

TEST_F(Crd, HoldsAStartedJobToItsShards) {
  created();
  const HttpResponse started = admin().merge_patch(
      kJobs + "/mrpc/status",
      {{"status", {{"phase", "Running"}, {"nominalWorkers", 2}, {"virtualShards", 8}}}});
  ASSERT_EQ(started.status, 200) << started.message();
  EXPECT_EQ(changed({{"spec", {{"elasticPolicy", {{"maxReplicas", 8}}}}}}).status, 200);
  const HttpResponse answer = changed({{"spec", {{"elasticPolicy", {{"maxReplicas", 16}}}}}});
  EXPECT_THAT(answer.message(),
              HasSubstr("found 16 x nprocPerNode 1 = 16 processes, expected at most 8"));
  EXPECT_THAT(answer.message(), HasSubstr("spec.elasticPolicy.maxReplicas"));
}

TEST_F(Crd, ScalesWithinItsBounds) {
  created();
  const CommandOutcome three = control_plane().kubectl({"scale", "trainjob/mrpc", "--replicas=3"});
  EXPECT_EQ(three.exit_code, 0) << three.error;
  ASSERT_EQ(
      admin()
          .merge_patch(
              kJobs + "/mrpc/status",
              {{"status", {{"replicas", {{"active", 3}}}, {"selector", "tilewright.dev/a=b"}}}})
          .status,
      200);
  const json scale = admin().get(kJobs + "/mrpc/scale").json();
  EXPECT_EQ(scale["spec"]["replicas"], 3);
  EXPECT_EQ(scale["status"]["replicas"], 3);
  EXPECT_EQ(scale["status"]["selector"], "tilewright.dev/a=b");
  const CommandOutcome five = control_plane().kubectl({"scale", "trainjob/mrpc", "--replicas=5"});
  EXPECT_NE(five.exit_code, 0);
  EXPECT_THAT(five.error, HasSubstr("found 4, expected at least 5, as spec.worker.replicas says"));

  // A job is elastic only where it says so.
  created(with("    minReplicas: 1\n    maxReplicas: 4\n", "", with("name: mrpc", "name: fixed")));
  EXPECT_THAT(
      changed({{"spec", {{"worker", {{"replicas", 3}}}}}}, "fixed").message(),
      HasSubstr("found 3, expected at most 2: without spec.elasticPolicy.maxReplicas a job does "
                "not grow"));
  EXPECT_THAT(
      changed({{"spec", {{"worker", {{"replicas", 1}}}}}}, "fixed").message(),
      HasSubstr("found 1, expected at least 2: without spec.elasticPolicy.minReplicas a job does "
                "not shrink"));
}

TEST_F(Crd, KeepsAStatusAsTheOperatorWritesIt) {
  json object = created();
  api::TrainJobStatus status;
  const api::Timestamp time = api::parse_timestamp("2026-01-31T23:59:59Z");
  status.phase = api::Phase::kRestarting;
  status.observed_generation = 1;
  status.start_time = time;
  status.completion_time = time;
  status.replicas = {.desired = 2, .active = 2, .ready = 1, .succeeded = 0, .failed = 1};
  status.selector = "tilewright.dev/job-name=mrpc";
  status.restarts = {.program = 1, .infrastructure = 2, .out_of_memory = 3};
  status.conditions = {{api::condition::kBlocked, api::ConditionStatus::kTrue, "Unschedulable",
                        "no node has 2 CPUs; it is tried again", 1, time}};
  status.failures = {{time,
                      1,
                      0,
                      "mrpc-worker-1",
                      "uid",
                      "node",
                      api::FailureCause::kProgram,
                      1,
                      std::nullopt,
                      "Error",
                      7,
                      {"a line"}}};
  status.counted_pods = {"uid"};
  status.progress.emplace();
  status.progress->step = 111;
  status.progress->total_steps = 168;
  status.progress->epoch = 5.29;
  status.progress->loss = 0.1323;
  status.progress->learning_rate = 3.45e-05;
  status.progress->examples_per_second = 255.8;
  status.progress->tokens_per_second = 5811;
  status.progress->eta_seconds = 7;
  status.progress->last_checkpoint = "checkpoint-100";
  status.progress->metrics = {{"accuracy", 0.8}};
  status.progress->updated = time;
  status.nominal_workers = 2;
  status.virtual_shards = 8;
  object["status"] = api::to_json(status);
  const HttpResponse answer = admin().put(kJobs + "/mrpc/status?fieldValidation=Strict", object);
  ASSERT_EQ(answer.status, 200) << answer.message();
  EXPECT_EQ(api::decode_object(answer.json(), true).job.status, status) << answer.body;

  // Its columns.
  const CommandOutcome table = control_plane().kubectl({"get", "trainjobs"});
  EXPECT_THAT(table.output,
              ::testing::ContainsRegex("NAME +PHASE +STEP +TOTAL +LOSS +EXAMPLES/S +ETA +READY "
                                       "+DESIRED +RESTARTS +AGE\n"
                                       "mrpc +Restarting +111 +168 +0.1323 +255.8 +7 +1 +2 +6 "
                                       "+[0-9]+s\n"));
  const CommandOutcome wide = control_plane().kubectl({"get", "tj", "-o", "wide"});
  EXPECT_THAT(wide.output, HasSubstr("no node has 2 CPUs; it is tried again"));
}

TEST_F(Crd, ExplainsItself) {
  // What the API server publishes of a definition follows it within a moment, and is announced to
  // nobody.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CommandOutcome told;
  do {
    told = control_plane().kubectl({"explain", "trainjob.spec.worker"});
  } while (told.exit_code != 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(told.output, HasSubstr("KIND:       TrainJob"));
  EXPECT_THAT(told.output, HasSubstr("How many workers there are to be."));
  EXPECT_THAT(told.output, HasSubstr("restartPolicy\t<string>"));
  EXPECT_THAT(told.output, HasSubstr("Always, OnFailure, Never, ExitCode"));
}

}  // namespace
}  // namespace tilewright::testing
