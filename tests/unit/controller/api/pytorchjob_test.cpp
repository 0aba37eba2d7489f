// Tests the PyTorchJob: decoding, the defaults of Kubeflow's operator, encoding.
#include "controller/api/pytorchjob.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/files.h"
#include "common/contract/labels.h"
#include "common/json/timestamp.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/api/validate.h"
#include "tests/support/paths.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// A PyTorchJob with `elastic` as its elasticPolicy and `spec` after its replica specs.
std::string manifest(const std::string& spec = "", const std::string& elastic = "") {
  return std::string(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: qa}
spec:
)") + (elastic.empty() ? "" : "  elasticPolicy: " + elastic + "\n") +
         R"(  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template:
        spec:
          containers:
          - {name: sidecar, image: proxy}
          - {name: pytorch, image: trainer}
)" + spec;
}

DecodedPyTorchJob decoded(const std::string& yaml) {
  return decode_pytorchjob_document(read_yaml(yaml));
}

PyTorchJob defaulted(const std::string& yaml) {
  DecodedPyTorchJob result = decoded(yaml);
  EXPECT_TRUE(result.ok()) << sentences(result.errors);
  apply_defaults(result.job);
  return result.job;
}

std::string decoding_errors_of(const std::string& yaml) {
  return sentences(decoded(yaml).errors, "job.yaml");
}

TEST(PyTorchJob, DecodesTheManifestsOfTheGuides) {
  for (const char* name : {"pytorchjob-bert-large.yaml", "pytorchjob-distilbert.yaml"}) {
    const auto text = read_file(tilewright::testing::source_dir() / "tests/golden/guides" / name,
                                kMaxManifestBytes, ExitCode::kManifest);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const PyTorchJob job = defaulted(*text);
    EXPECT_EQ(job.metadata.name, "transformers-pytorchjob");
    const PyTorchElasticPolicy& elastic = *job.spec.elastic_policy;
    EXPECT_EQ(elastic.rdzv_backend, "c10d");
    EXPECT_EQ(elastic.min_replicas, 1);
    EXPECT_EQ(elastic.max_replicas, 4);
    EXPECT_EQ(elastic.max_restarts, 10);
    EXPECT_FALSE(job.spec.master);
    EXPECT_EQ(job.spec.worker->replicas, 4);
    EXPECT_EQ(job.spec.worker->restart_policy, RestartPolicy::kOnFailure);
    const json* container = pytorch_container(*job.spec.worker);
    ASSERT_NE(container, nullptr);
    EXPECT_EQ((*container)["image"], "tilewright-worker:0.1.0");
    EXPECT_EQ(job.spec.nproc_per_node, "auto");
    EXPECT_EQ(job.spec.run_policy.clean_pod_policy, CleanPodPolicy::kNone);
  }
}

// The expected values are those of pytorch_defaults_test.go in Kubeflow's repository.
TEST(PyTorchJob, HasTheDefaultsOfKubeflow) {
  const PyTorchJob job = defaulted(manifest());
  EXPECT_EQ(job.spec.run_policy.clean_pod_policy, CleanPodPolicy::kNone);
  EXPECT_EQ(job.spec.run_policy.suspend, false);
  EXPECT_EQ(job.spec.nproc_per_node, "auto");
  EXPECT_FALSE(job.spec.elastic_policy);
  EXPECT_EQ(job.spec.worker->restart_policy, RestartPolicy::kOnFailure);
  const json& containers = job.spec.worker->pod_template["spec"]["containers"];
  EXPECT_FALSE(containers[0].contains("ports"));
  EXPECT_EQ(containers[1]["ports"],
            json::parse(R"([{"name": "pytorchjob-port", "containerPort": 23456}])"));
  EXPECT_EQ(rendezvous_port(*job.spec.worker), 23456);

  PyTorchJob again = job;
  apply_defaults(again);
  EXPECT_EQ(again, job);
}

TEST(PyTorchJob, DerivesTheElasticLimits) {
  const std::pair<const char*, std::pair<int, int>> cases[] = {
      {"{}", {3, 3}},
      {"{minReplicas: 2}", {2, 2}},
      {"{maxReplicas: 5}", {5, 5}},
      {"{minReplicas: 1, maxReplicas: 4}", {1, 4}}};
  for (const auto& [elastic, limits] : cases) {
    const PyTorchJob job = defaulted(manifest("", elastic));
    EXPECT_EQ(job.spec.elastic_policy->min_replicas, limits.first) << elastic;
    EXPECT_EQ(job.spec.elastic_policy->max_replicas, limits.second) << elastic;
    EXPECT_FALSE(job.spec.elastic_policy->max_restarts) << elastic;
  }
}

TEST(PyTorchJob, KeepsWhatTheManifestSets) {
  const PyTorchJob job = defaulted(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: qa}
spec:
  nprocPerNode: "2"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: pytorch
            ports: [{name: other, containerPort: 1}, {name: pytorchjob-port, containerPort: 29500}]
)");
  EXPECT_EQ(job.spec.nproc_per_node, "2");
  EXPECT_EQ(job.spec.master->restart_policy, RestartPolicy::kNever);
  EXPECT_EQ(pytorch_container(*job.spec.master)->at("ports").size(), 2u);
  EXPECT_EQ(rendezvous_port(*job.spec.master), 29500);
  // The deprecated field takes the place of the default.
  EXPECT_FALSE(defaulted(manifest("", "{nProcPerNode: 4}")).spec.nproc_per_node);
}

TEST(PyTorchJob, AcceptsReplicaTypesInAnyCase) {
  for (const char* name : {"worker", "WORKER", "wOrKeR"}) {
    std::string yaml = manifest();
    yaml.replace(yaml.find("Worker"), 6, name);
    EXPECT_EQ(defaulted(yaml).spec.worker->replicas, 3) << name;
  }
}

TEST(PyTorchJob, TreatsEmptyValuesAsNotSet) {
  const PyTorchJob job =
      defaulted(manifest("      restartPolicy: \"\"\n  runPolicy: {cleanPodPolicy: \"\"}\n"));
  EXPECT_EQ(job.spec.worker->restart_policy, RestartPolicy::kOnFailure);
  EXPECT_EQ(job.spec.run_policy.clean_pod_policy, CleanPodPolicy::kNone);
}

TEST(PyTorchJob, ReportsWhatItCannotRead) {
  EXPECT_EQ(decoding_errors_of(manifest("  nprocPerNode: 2\n")),
            "job.yaml:13: spec.nprocPerNode: found the number 2, expected a string (put it in "
            "quotes)");
  EXPECT_EQ(decoding_errors_of(manifest("    PS: {replicas: 1}\n")),
            "job.yaml:13: spec.pytorchReplicaSpecs.PS: found an unknown replica type, expected "
            "Master or Worker");
  EXPECT_EQ(decoding_errors_of(manifest("    worker: {replicas: 1}\n")),
            "job.yaml:13: spec.pytorchReplicaSpecs.worker: found Worker twice, expected it once");
  EXPECT_EQ(decoding_errors_of(manifest("  replicas: 2\n")),
            "job.yaml:13: spec.replicas: unknown field");
  EXPECT_EQ(decoding_errors_of(manifest("  elasticPolizy: {}\n")),
            "job.yaml:13: spec.elasticPolizy: unknown field; did you mean elasticPolicy?");
  EXPECT_EQ(decoding_errors_of(manifest("      restartPolicy: Sometimes\n")),
            fmt::format("job.yaml:13: spec.pytorchReplicaSpecs.Worker.restartPolicy: found the "
                        "string \"Sometimes\", expected one of {}",
                        fmt::join(enum_names(RestartPolicy()), ", ")));
  EXPECT_EQ(decoding_errors_of(manifest("          volumes: none\n")),
            "job.yaml:13: spec.pytorchReplicaSpecs.Worker.template.spec.volumes: found the string "
            "\"none\", expected a list");
  std::string other = manifest();
  other.replace(other.find("/v1"), 3, "/v2");
  EXPECT_EQ(decoding_errors_of(other),
            "job.yaml:1: apiVersion: found the string \"kubeflow.org/v2\", expected "
            "kubeflow.org/v1");
}

// Unknown fields of the API server's objects are ignored, but not a replica type whose pods would
// silently not run.
TEST(PyTorchJob, ReadsObjectsOfANewerVersion) {
  json object = to_json(defaulted(manifest()));
  object["spec"]["somethingNew"] = 1;
  EXPECT_TRUE(decode_pytorchjob(object).ok());
  EXPECT_FALSE(decode_pytorchjob(object, FieldValidation::kStrict).ok());
  object["spec"]["pytorchReplicaSpecs"]["Evaluator"] = json::object();
  EXPECT_FALSE(decode_pytorchjob(object).ok());
}

PyTorchJob full_pytorchjob() {
  PyTorchJob job = defaulted(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: qa
  namespace: kubeflow
  labels: {team: a}
spec:
  nprocPerNode: cpu
  elasticPolicy:
    minReplicas: 1
    maxReplicas: 4
    rdzvBackend: c10d
    rdzvPort: 29400
    rdzvHost: qa-worker-0
    rdzvId: qa
    rdzvConf: [{key: timeout, value: "900"}, {key: read_timeout, value: "60"}]
    standalone: false
    nProcPerNode: 2
    maxRestarts: 10
    metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
  runPolicy:
    cleanPodPolicy: All
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 3
    suspend: true
    managedBy: kubeflow.org/training-operator
    schedulingPolicy:
      minAvailable: 2
      queue: batch
      minResources: {cpu: 4, memory: 8Gi}
      priorityClass: high
      scheduleTimeoutSeconds: 300
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: ExitCode, template: {spec: {containers: [{name: pytorch}]}}}
    Worker: {replicas: 2, restartPolicy: Always, template: {spec: {containers: [{name: pytorch}]}}}
)");
  const Timestamp time = parse_timestamp("2026-01-31T23:59:59Z");
  job.status.conditions = {
      {"Running", ConditionStatus::kTrue, "PyTorchJobRunning", "runs", time, time}};
  job.status.replica_statuses["Worker"] = {
      .active = 1, .succeeded = 2, .failed = 3, .selector = "training.kubeflow.org/job-name=qa"};
  job.status.start_time = time;
  job.status.completion_time = time;
  job.status.last_reconcile_time = time;
  job.status.tilewright.restarts = {.program = 1, .infrastructure = 2, .out_of_memory = 3};
  job.status.tilewright.counted_pods = {"uid"};
  return job;
}

TEST(PyTorchJob, ReadsBackWhatItWrites) {
  const PyTorchJob job = full_pytorchjob();
  const DecodedPyTorchJob read = decode_pytorchjob(to_json(job), FieldValidation::kStrict);
  ASSERT_TRUE(read.ok()) << sentences(read.errors);
  EXPECT_EQ(read.job, job) << to_json(read.job) << "\n" << to_json(job);
  EXPECT_EQ(job.spec.run_policy.common().scheduling_policy->queue, "batch");
  EXPECT_EQ(job.spec.run_policy.common().ttl_seconds_after_finished, 60);
}

TEST(PyTorchJob, WritesTheStatusAsKubeflowDoes) {
  PyTorchJobStatus status = full_pytorchjob().status;
  status.tilewright = {};
  status.replica_statuses["Worker"].failed = 0;
  EXPECT_EQ(to_json(status), json::parse(R"({
    "conditions": [{"type": "Running", "status": "True", "reason": "PyTorchJobRunning",
                    "message": "runs", "lastUpdateTime": "2026-01-31T23:59:59Z",
                    "lastTransitionTime": "2026-01-31T23:59:59Z"}],
    "replicaStatuses": {"Worker": {"active": 1, "succeeded": 2,
                                   "selector": "training.kubeflow.org/job-name=qa"}},
    "startTime": "2026-01-31T23:59:59Z",
    "completionTime": "2026-01-31T23:59:59Z",
    "lastReconcileTime": "2026-01-31T23:59:59Z"})"));
}

TEST(PyTorchJob, BelongsToTheOperatorThatManagedByNames) {
  PyTorchJob job = defaulted(manifest());
  EXPECT_TRUE(is_managed_here(job, KubeflowOperator::kAbsent));
  EXPECT_FALSE(is_managed_here(job, KubeflowOperator::kPresent));
  job.spec.run_policy.managed_by = "kubeflow.org/training-operator";
  EXPECT_TRUE(is_managed_here(job, KubeflowOperator::kAbsent));
  EXPECT_FALSE(is_managed_here(job, KubeflowOperator::kPresent));
  job.spec.run_policy.managed_by = "tilewright.dev/operator";
  EXPECT_TRUE(is_managed_here(job, KubeflowOperator::kAbsent));
  EXPECT_TRUE(is_managed_here(job, KubeflowOperator::kPresent));
  job.spec.run_policy.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_FALSE(is_managed_here(job, KubeflowOperator::kAbsent));
  EXPECT_FALSE(is_managed_here(job, KubeflowOperator::kPresent));
}

std::string findings_of(const std::string& yaml) {
  DecodedPyTorchJob result = decoded(yaml);
  EXPECT_TRUE(result.ok()) << sentences(result.errors);
  apply_defaults(result.job);
  const Findings findings = validate(result.job, result.positions);
  const std::string warnings = sentences(findings.warnings, "job.yaml");
  return sentences(findings.errors, "job.yaml") + (warnings.empty() ? "" : "warning: " + warnings);
}

std::string manifest_with(const std::string& place, const std::string& replacement,
                          std::string text = manifest()) {
  const std::size_t at = text.find(place);
  EXPECT_NE(at, std::string::npos) << place;
  return text.replace(at, place.size(), replacement);
}

TEST(ValidatePyTorchJob, AcceptsValidJobs) {
  EXPECT_EQ(findings_of(manifest()), "");
  EXPECT_EQ(findings_of(manifest("  nprocPerNode: \"2\"\n", "{minReplicas: 1, maxReplicas: 4}")),
            "");
}

// Kubeflow's CRD has no maxima but those of the types.
TEST(ValidatePyTorchJob, AcceptsLimitsAboveThoseOfATrainJob) {
  const std::string yaml = manifest(
      "  runPolicy: {ttlSecondsAfterFinished: 2147483647, activeDeadlineSeconds: "
      "9223372036854775807, backoffLimit: 2147483647}\n");
  EXPECT_EQ(findings_of(yaml), "");
  const PyTorchRunPolicy policy = decode_pytorchjob_document(read_yaml(yaml)).job.spec.run_policy;
  EXPECT_EQ(policy.ttl_seconds_after_finished, 2147483647) << "not changed in the job itself";
  const RunPolicy common = policy.common();
  EXPECT_EQ(common.ttl_seconds_after_finished, kMaxSeconds);
  EXPECT_EQ(common.active_deadline_seconds, kMaxSeconds);
  EXPECT_EQ(common.backoff_limit, 1'000'000);
}

TEST(ValidatePyTorchJob, RefusesWhatKubeflowsWebhookRefuses) {
  EXPECT_EQ(findings_of(manifest_with("{name: qa}", "{name: 1qa}")),
            "job.yaml:3: metadata.name: found 1qa, expected lower-case letters, digits and '-', "
            "starting with a letter and not ending with '-'");
  EXPECT_EQ(
      findings_of("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: qa}\nspec: {}"),
      "job.yaml:4: spec.pytorchReplicaSpecs: found nothing, expected Master, Worker or both");
  EXPECT_EQ(findings_of(manifest_with(
                "Worker", "Master",
                manifest_with("replicas: 3", "replicas: 1", manifest("", "{maxRestarts: 3}")))),
            "job.yaml:6: spec.pytorchReplicaSpecs.Worker: found nothing, expected the workers of "
            "spec.elasticPolicy");
  EXPECT_EQ(findings_of(manifest("  nprocPerNode: \"2\"\n", "{nProcPerNode: 4}")),
            "job.yaml:5: spec.elasticPolicy.nProcPerNode: must not be set together with "
            "spec.nprocPerNode");
  EXPECT_EQ(
      findings_of(manifest("", "{nProcPerNode: 4}")),
      "warning: job.yaml:5: spec.elasticPolicy.nProcPerNode: is deprecated since Kubeflow 1.7; "
      "use spec.nprocPerNode");
  EXPECT_EQ(
      findings_of(manifest_with("Worker", "Master")),
      "job.yaml:7: spec.pytorchReplicaSpecs.Master.replicas: found 3, expected 1: a job has one "
      "master");
  EXPECT_EQ(
      findings_of(manifest_with("replicas: 3", "replicas: 0")),
      "job.yaml:7: spec.pytorchReplicaSpecs.Worker.replicas: found 0, expected an integer from "
      "1 to 1000");
  EXPECT_EQ(findings_of(manifest_with("name: pytorch", "name: trainer")),
            "job.yaml:10: spec.pytorchReplicaSpecs.Worker.template.spec.containers: found sidecar, "
            "trainer, expected a container named pytorch");
  EXPECT_EQ(findings_of(manifest_with(", image: trainer", "")),
            "job.yaml:12: spec.pytorchReplicaSpecs.Worker.template.spec.containers[1].image: found "
            "nothing, expected an image");
  EXPECT_EQ(findings_of(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: qa}
spec: {pytorchReplicaSpecs: {Worker: {replicas: 1}}}
)"),
            "job.yaml:4: spec.pytorchReplicaSpecs.Worker.template.spec.containers: found nothing, "
            "expected a container named pytorch");
}

TEST(ValidatePyTorchJob, RefusesWhatFailsInEveryPod) {
  EXPECT_EQ(findings_of(manifest("  nprocPerNode: all\n")),
            "job.yaml:13: spec.nprocPerNode: found all, expected auto, cpu, gpu, xpu or an integer "
            "from 1 to 256");
  EXPECT_EQ(findings_of(manifest("  nprocPerNode: \"0\"\n")),
            "job.yaml:13: spec.nprocPerNode: found 0, expected auto, cpu, gpu, xpu or an integer "
            "from 1 to 256");
  EXPECT_EQ(findings_of(manifest("", "{minReplicas: 4, maxReplicas: 3}")),
            "job.yaml:5: spec.elasticPolicy.minReplicas: found 4, expected at most 3, the value of "
            "spec.elasticPolicy.maxReplicas");
  EXPECT_EQ(findings_of(manifest("", "{rdzvPort: 70000}")),
            "job.yaml:5: spec.elasticPolicy.rdzvPort: found 70000, expected an integer from 1 to "
            "65535");
  EXPECT_EQ(findings_of(manifest("", "{rdzvConf: [{value: \"1\"}]}")),
            "job.yaml:5: spec.elasticPolicy.rdzvConf[0].key: found nothing, expected the name of a "
            "setting");
  EXPECT_EQ(findings_of(manifest("", "{metrics: [{}]}")),
            "job.yaml:5: spec.elasticPolicy.metrics[0]: found no type, expected a metric of a "
            "HorizontalPodAutoscaler");
  EXPECT_EQ(findings_of(manifest("", "{minReplicas: 4, maxReplicas: 5}")),
            "warning: job.yaml:8: spec.pytorchReplicaSpecs.Worker.replicas: found 3, fewer than 4, "
            "the value of spec.elasticPolicy.minReplicas: the training waits for more workers");
  EXPECT_EQ(
      findings_of(manifest("", "{minReplicas: 1, maxReplicas: 2}")),
      "warning: job.yaml:8: spec.pytorchReplicaSpecs.Worker.replicas: found 3, more than 2, the "
      "value of spec.elasticPolicy.maxReplicas: the other workers wait");
}

TEST(ValidatePyTorchJob, RefusesValuesThatKubernetesDoesNotHave) {
  const std::string containers = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[1]";
  const auto with_field = [](const std::string& field) {
    return manifest_with("image: trainer", "image: trainer, " + field);
  };
  EXPECT_EQ(decoding_errors_of(with_field("resources: {limits: {memory: 128GB}}")),
            "job.yaml:12: " + containers +
                ".resources.limits.memory: found the string \"128GB\", expected a quantity such as "
                "2, 500m or 2Gi; did you mean 128G or 128Gi?");
  EXPECT_EQ(decoding_errors_of(with_field("resources: {requests: {cpu: abc}}")),
            "job.yaml:12: " + containers +
                ".resources.requests.cpu: found the string \"abc\", expected a quantity such as 2, "
                "500m or 2Gi");
  EXPECT_EQ(decoding_errors_of(with_field("imagePullPolicy: Sometime")),
            "job.yaml:12: " + containers +
                ".imagePullPolicy: found the string \"Sometime\", expected one of Always, "
                "IfNotPresent, Never");
  EXPECT_EQ(findings_of(with_field("imagePullPolicy: \"\", resources: {limits: {memory: 0}}")), "");
  const std::string volume = "          volumes: [{name: d, persistentVolumeClaim: ";
  const std::string claim =
      "spec.pytorchReplicaSpecs.Worker.template.spec.volumes[0].persistentVolumeClaim.claim";
  EXPECT_EQ(findings_of(manifest(volume + "{claimName: d}}]\n")), "");
  EXPECT_EQ(findings_of(manifest(volume + "{claimNam: d}}]\n")),
            "job.yaml:13: " + claim +
                "Name: found nothing, expected the name of a claimwarning: job.yaml:13: " + claim +
                "Nam: unknown field; did you mean claimName?");
}

TEST(ValidatePyTorchJob, WarnsOfFieldsThatNoPodHas) {
  const std::string pod = "spec.pytorchReplicaSpecs.Worker.template.spec.";
  const std::pair<const char*, const char*> of_container[] = {
      {"comand: [a]", "comand: unknown field; did you mean command?"},
      {"envs: []", "envs: unknown field; did you mean env?"},
      {"resources: {limit: {cpu: 1}}", "resources.limit: unknown field; did you mean limits?"},
      {"gpus: 1", "gpus: unknown field"},
  };
  for (const auto& [field, message] : of_container) {
    EXPECT_EQ(findings_of(manifest_with("image: trainer", std::string("image: trainer, ") + field)),
              "warning: job.yaml:12: " + pod + "containers[1]." + message);
  }
  const std::pair<const char*, const char*> of_pod[] = {
      {"nodeSelectr: {disk: ssd}", "nodeSelectr: unknown field; did you mean nodeSelector?"},
      {"toleration: []", "toleration: unknown field; did you mean tolerations?"},
  };
  for (const auto& [field, message] : of_pod) {
    EXPECT_EQ(findings_of(manifest(std::string("          ") + field + "\n")),
              "warning: job.yaml:13: " + pod + message);
  }
}

TEST(ValidatePyTorchJob, WarnsOfAMountOfNoVolume) {
  const std::string mounts = "image: trainer, volumeMounts: [{name: data, mountPath: /data}]";
  const auto with_volume = [&](const std::string& name) {
    const std::string volumes = "          volumes: [{name: " + name + ", emptyDir: {}}]\n";
    return manifest_with("image: trainer", mounts, manifest(volumes));
  };
  EXPECT_EQ(findings_of(with_volume("data")), "");
  EXPECT_EQ(findings_of(manifest_with(
                "image: trainer", "image: trainer, volumeDevices: [{name: d, devicePath: /d}]")),
            "warning: job.yaml:12: spec.pytorchReplicaSpecs.Worker.template.spec.containers[1]."
            "volumeDevices[0].name: found d, expected the name of a volume");
  EXPECT_EQ(findings_of(with_volume("dta")),
            "warning: job.yaml:12: spec.pytorchReplicaSpecs.Worker.template.spec.containers[1]."
            "volumeMounts[0].name: found data, expected the name of a volume; did you mean dta?");
}

// Each name compared with each would take minutes in each reconcile.
TEST(ValidatePyTorchJob, WarnsOfNoMoreThanSomeMountsOfATenant) {
  std::string mounts, volumes;
  for (int i = 0; i < 10'000; ++i) {
    mounts += fmt::format("{}{{name: m{}, mountPath: /m}}", i == 0 ? "" : ", ", i);
    volumes += fmt::format("{}{{name: v{}, emptyDir: {{}}}}", i == 0 ? "" : ", ", i);
  }
  const std::string findings =
      findings_of(manifest_with("image: trainer", "image: trainer, volumeMounts: [" + mounts + "]",
                                manifest("          volumes: [" + volumes + "]\n")));
  EXPECT_THAT(findings, ::testing::HasSubstr("volumeMounts[0].name: found m0, expected the name"));
  EXPECT_EQ(std::ranges::count(findings, '\n'), 99);
}

// Objects whose content is only passed on, and fields of newer versions of Kubernetes.
TEST(ValidatePyTorchJob, KnowsTheFieldsOfAPod) {
  EXPECT_EQ(findings_of(manifest(R"(          affinity: {nodeAffinity: {}}
          dnsConfig: {options: [{name: ndots}]}
          ephemeralContainers: []
          topologySpreadConstraints: [{maxSkew: 1, matchLabelKeys: [a], nodeTaintsPolicy: Honor}]
          resourceClaims: [{name: nic, resourceClaimTemplateName: nic}]
          volumes:
          - {name: a, emptyDir: {sizeLimit: 1Gi, medium: Memory}}
          - {name: b, projected: {sources: []}}
        metadata: {creationTimestamp: null, labels: {a: b}, name: pod}
)")),
            "");
  EXPECT_EQ(findings_of(manifest_with(
                "image: trainer",
                "image: trainer, livenessProbe: {exec: {command: [a]}}, lifecycle: {preStop: {}}, "
                "resizePolicy: [], env: [{name: A, valueFrom: {fieldRef: {fieldPath: a}}}]")),
            "");
}

}  // namespace
}  // namespace tilewright::api
