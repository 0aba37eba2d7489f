// The Kubernetes objects of a job.
#include "controller/cluster/objects.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/controller/api/manifest.h"

namespace tilewright::cluster {
namespace {

using api::testing::job_of;
using api::testing::kManifest;
using api::testing::with;
using nlohmann::json;

api::TrainJob job_in_cluster(const std::string& manifest = api::testing::kManifest) {
  api::TrainJob job = job_of(manifest);
  job.metadata.namespace_name = "team";
  job.metadata.uid = "uid-1";
  return job;
}

json pod_of(const std::string& manifest = api::testing::kManifest) {
  return build_pod(job_in_cluster(manifest), 1, {"10.0.0.7:29400", "0a1b2c3d"});
}

json named(const json& list, const std::string& name) {
  for (const json& entry : list) {
    if (entry.at("name") == name) return entry;
  }
  return nullptr;
}

TEST(Objects, BelongToTheJobAndCarryItsLabels) {
  const api::TrainJob job = job_in_cluster();
  for (const json& object : {build_pod(job, 0, {"h:1", "0a1b2c3d"}), build_service(job),
                             build_secret(job, "ab", "0a1b2c3d"), build_network_policy(job, {}),
                             build_pod_group(job, {})}) {
    const json& metadata = object.at("metadata");
    EXPECT_EQ(metadata.at("namespace"), "team");
    EXPECT_EQ(metadata.at("labels").at("tilewright.dev/job-name"), "mrpc");
    EXPECT_EQ(metadata.at("labels").at("tilewright.dev/job-uid"), "uid-1");
    EXPECT_EQ(metadata.at("ownerReferences"),
              json::parse(R"([{"apiVersion": "tilewright.dev/v1alpha1", "kind": "TrainJob",
                               "name": "mrpc", "uid": "uid-1", "controller": true,
                               "blockOwnerDeletion": true}])"));
  }
}

TEST(Pod, HasTheGenerationOfTheJob) {
  api::TrainJob job = job_in_cluster();
  job.metadata.generation = 3;
  EXPECT_EQ(
      build_pod(job, 0, {"h:1", "0a1b2c3d"})["metadata"]["annotations"]["tilewright.dev/key-id"],
      "0a1b2c3d");
  EXPECT_EQ(
      build_pod(job, 0,
                {"h:1", "0a1b2c3d"})["metadata"]["annotations"]["tilewright.dev/job-generation"],
      "3");
}

TEST(Pod, IsGuaranteedAndNeverRestartedInPlace) {
  const json spec = pod_of().at("spec");
  EXPECT_EQ(spec.at("restartPolicy"), "Never");
  const json resources = spec.at("containers").at(0).at("resources");
  EXPECT_EQ(resources.at("limits"), resources.at("requests"));
  EXPECT_EQ(resources.at("limits"), json::parse(R"({"cpu": "1", "memory": "2Gi"})"));
}

// kubernetes.io, "Pod Security Standards", restricted.
TEST(Pod, MeetsTheRestrictedPodSecurityStandard) {
  const json spec = pod_of().at("spec");
  EXPECT_EQ(spec.at("securityContext").at("runAsNonRoot"), true);
  EXPECT_GT(spec.at("securityContext").at("runAsUser").get<int>(), 0);
  EXPECT_EQ(spec.at("securityContext").at("seccompProfile").at("type"), "RuntimeDefault");
  const json security = spec.at("containers").at(0).at("securityContext");
  EXPECT_EQ(security.at("allowPrivilegeEscalation"), false);
  EXPECT_EQ(security.at("capabilities"), json::parse(R"({"drop": ["ALL"]})"));
  EXPECT_EQ(security.at("readOnlyRootFilesystem"), true);
  for (const char* host : {"hostNetwork", "hostPID", "hostIPC"}) EXPECT_FALSE(spec.contains(host));
}

TEST(Pod, RestrictsTheContainersOfThePodTemplate) {
  const json spec = pod_of(with("sharedMemory: 64Mi",
                                "podTemplate: {spec: {containers: [{name: side, image: s}], "
                                "initContainers: [{name: init, image: i}]}}"))
                        .at("spec");
  const json least =
      json::parse(R"({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})");
  EXPECT_EQ(named(spec.at("containers"), "side").at("securityContext"), least);
  EXPECT_EQ(named(spec.at("initContainers"), "init").at("securityContext"), least);
}

TEST(Pod, LeavesVariableExpansionToTheKubelet) {
  const json container = pod_of().at("spec").at("containers").at(0);
  EXPECT_EQ(container.at("name"), "worker");
  EXPECT_EQ(container.at("command"), json::parse(R"(["tilewright-worker"])"));
  EXPECT_EQ(container.at("args").at(0), "train");
  EXPECT_EQ(container.at("args").at(4),
            "--output_dir=/mnt/tilewright/output/$(TILEWRIGHT_JOB_NAME)");
  EXPECT_EQ(container.at("terminationMessagePolicy"), "FallbackToLogsOnError");
  EXPECT_FALSE(container.contains("imagePullPolicy"));
}

TEST(Pod, SetsRuntimeVariablesBeforeThoseOfTheManifest) {
  const json env = pod_of(with("sharedMemory: 64Mi",
                               "env:\n"
                               "      - {name: NODE, valueFrom: {fieldRef: {fieldPath: a}}}\n"
                               "      - {name: RUN, value: $(NODE)-$(TILEWRIGHT_JOB_NAME)}"))
                       .at("spec")
                       .at("containers")
                       .at(0)
                       .at("env");
  EXPECT_EQ(named(env, "TILEWRIGHT_JOB_NAME").at("value"), "mrpc");
  EXPECT_EQ(named(env, "TILEWRIGHT_JOB_UID").at("value"), "uid-1");
  EXPECT_EQ(named(env, "TILEWRIGHT_RENDEZVOUS").at("value"), "10.0.0.7:29400");
  EXPECT_EQ(named(env, "TILEWRIGHT_WORKER_INDEX").at("value"), "1");
  EXPECT_EQ(named(env, "TILEWRIGHT_METRICS_ADDRESS").at("value"), ":9400")
      << "all addresses, IPv4 and IPv6";
  EXPECT_EQ(named(env, "TILEWRIGHT_TRANSPORT_PORT").at("value"), "29500")
      << "the NetworkPolicy opens only this port";
  EXPECT_EQ(env.at(env.size() - 2),
            json::parse(R"({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "a"}}})"));
  EXPECT_EQ(env.back().at("value"), "$(NODE)-$(TILEWRIGHT_JOB_NAME)");
}

// The pod's root file system is read-only.
TEST(Pod, HasAWritableCacheOfTheHub) {
  const auto env_of = [](const std::string& manifest) {
    return pod_of(manifest).at("spec").at("containers").at(0).at("env");
  };
  EXPECT_EQ(named(env_of(kManifest), "HF_HOME").at("value"), "/tmp/huggingface");
  const json own = env_of(with("sharedMemory: 64Mi", "env: [{name: HF_HOME, value: /mnt/a}]"));
  EXPECT_EQ(
      std::ranges::count_if(own, [](const json& entry) { return entry.at("name") == "HF_HOME"; }),
      1);
  EXPECT_EQ(named(own, "HF_HOME").at("value"), "/mnt/a");
  const json models =
      env_of(with("sharedMemory: 64Mi", "env: [{name: HF_HUB_CACHE, value: /mnt/a}]"));
  EXPECT_EQ(named(models, "HF_HOME").at("value"), "/tmp/huggingface")
      << "for the token and Arrow files";
}

TEST(Pod, MountsVolumesKeySharedMemoryAndTmp) {
  const json spec =
      pod_of(with("{claimName: tilewright-data}", "{claimName: tilewright-data, readOnly: true}"))
          .at("spec");
  const json mounts = spec.at("containers").at(0).at("volumeMounts");
  EXPECT_EQ(named(mounts, "models"),
            json::parse(R"({"name": "models", "mountPath": "/mnt/tilewright/models"})"));
  EXPECT_EQ(named(mounts, "data").at("readOnly"), true);
  EXPECT_EQ(named(mounts, "tilewright-shm").at("mountPath"), "/dev/shm");
  EXPECT_EQ(named(mounts, "tilewright-tmp").at("mountPath"), "/tmp");
  EXPECT_EQ(named(mounts, "tilewright-job-key").at("mountPath"), "/var/run/tilewright");
  const json& volumes = spec.at("volumes");
  EXPECT_EQ(named(volumes, "tilewright-shm").at("emptyDir"),
            json::parse(R"({"medium": "Memory", "sizeLimit": "64Mi"})"));
  EXPECT_EQ(named(volumes, "tilewright-job-key").at("secret").at("secretName"),
            "mrpc-job-key-uid-1-0a1b2c3d");
  EXPECT_EQ(named(volumes, "models"), json::parse(R"({"name": "models",
                            "persistentVolumeClaim": {"claimName": "tilewright-models"}})"));
  for (const json& mount : mounts) EXPECT_FALSE(named(volumes, mount.at("name")).is_null());
}

TEST(Pod, HasTheSchedulingFieldsOfTheManifest) {
  const json spec = pod_of(with("sharedMemory: 64Mi",
                                "nodeSelector: {disk: ssd}\n"
                                "    tolerations: [{key: k, operator: Exists}]\n"
                                "    affinity: {nodeAffinity: {}}\n"
                                "    topologySpreadConstraints: [{maxSkew: 1}]\n"
                                "    priorityClassName: high\n"
                                "    imagePullSecrets: [{name: s}]\n"
                                "    imagePullPolicy: Never\n"
                                "    runAsUser: 1000\n"
                                "    fsGroup: 2000\n"
                                "    terminationGracePeriodSeconds: 7"))
                        .at("spec");
  EXPECT_EQ(spec.at("nodeSelector"), json::parse(R"({"disk": "ssd"})"));
  EXPECT_EQ(spec.at("tolerations"), json::parse(R"([{"key": "k", "operator": "Exists"}])"));
  EXPECT_EQ(spec.at("affinity"), json::parse(R"({"nodeAffinity": {}})"));
  EXPECT_EQ(spec.at("topologySpreadConstraints"), json::parse(R"([{"maxSkew": 1}])"));
  EXPECT_EQ(spec.at("priorityClassName"), "high");
  EXPECT_EQ(spec.at("imagePullSecrets"), json::parse(R"([{"name": "s"}])"));
  EXPECT_EQ(spec.at("containers").at(0).at("imagePullPolicy"), "Never");
  EXPECT_EQ(spec.at("securityContext").at("runAsUser"), 1000);
  EXPECT_EQ(spec.at("securityContext").at("fsGroup"), 2000);
  EXPECT_EQ(spec.at("terminationGracePeriodSeconds"), 7);
}

TEST(Pod, AppliesThePodTemplateButKeepsItsLabels) {
  const json pod = pod_of(
      with("sharedMemory: 64Mi",
           "podTemplate:\n"
           "      metadata: {labels: {team: nlp, tilewright.dev/role: spy}, annotations: {a: b}}\n"
           "      spec:\n"
           "        priority: 5\n"
           "        containers:\n"
           "          - {name: worker, env: [{name: EXTRA, value: x}]}\n"
           "          - {name: side, image: side:1}"));
  EXPECT_EQ(pod.at("metadata").at("labels").at("team"), "nlp");
  EXPECT_EQ(pod.at("metadata").at("labels").at("tilewright.dev/role"), "worker");
  EXPECT_EQ(pod.at("metadata").at("annotations").at("a"), "b");
  EXPECT_EQ(pod.at("spec").at("priority"), 5);
  ASSERT_EQ(pod.at("spec").at("containers").size(), 2u);
  const json worker = pod.at("spec").at("containers").at(0);
  EXPECT_EQ(named(worker.at("env"), "EXTRA").at("value"), "x");
  EXPECT_EQ(named(worker.at("env"), "TILEWRIGHT_JOB_NAME").at("value"), "mrpc");
  EXPECT_EQ(worker.at("image"), "tilewright-worker:0.1.0");
}

// After the merge: the pod template may replace the claim of a volume.
TEST(Pod, HasTheClaimsOfItsVolumesAndOfThePodTemplate) {
  const api::TrainJob job = job_in_cluster(
      with("sharedMemory: 64Mi",
           "podTemplate: {spec: {volumes: [{name: more, persistentVolumeClaim: {claimName: x}}, "
           "{name: data, persistentVolumeClaim: {claimName: other}}, {name: a, emptyDir: {}}]}}"));
  EXPECT_EQ(claims_of(job), (std::map<std::string, std::string>{{"other", "data"},
                                                                {"tilewright-models", "models"},
                                                                {"tilewright-output", "output"},
                                                                {"x", "more"}}));
}

TEST(Pod, JoinsAPodGroupIfTheJobHasASchedulingPolicy) {
  const std::string gang = with("cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 2}");
  EXPECT_EQ(pod_of(gang).at("metadata").at("labels").at("scheduling.x-k8s.io/pod-group"), "mrpc");
  const json volcano = pod_of(with("sharedMemory: 64Mi", "schedulerName: volcano", gang));
  EXPECT_EQ(volcano.at("metadata").at("annotations").at("scheduling.k8s.io/group-name"), "mrpc");
  EXPECT_EQ(volcano.at("spec").at("schedulerName"), "volcano");
  EXPECT_FALSE(pod_of().at("metadata").at("annotations").contains("scheduling.k8s.io/group-name"));
}

TEST(PodGroup, HasTheApiOfTheScheduler) {
  policy::Gang gang;
  gang.min_member = 2;
  gang.queue = "q";
  gang.schedule_timeout_seconds = 30;
  EXPECT_EQ(build_pod_group(job_in_cluster(), gang).at("spec"),
            json::parse(R"({"minMember": 2, "scheduleTimeoutSeconds": 30})"));
  const json volcano =
      build_pod_group(job_in_cluster(with("sharedMemory: 64Mi", "schedulerName: volcano")), gang);
  EXPECT_EQ(volcano.at("apiVersion"), "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(volcano.at("spec"), json::parse(R"({"minMember": 2, "queue": "q"})"));
}

TEST(PodGroup, HasTheApiOfThePodTemplatesScheduler) {
  const std::string gang = with("cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 2}");
  const std::string manifest =
      with("sharedMemory: 64Mi",
           "schedulerName: other\n    podTemplate: {spec: {schedulerName: volcano}}", gang);
  const json pod = pod_of(manifest);
  EXPECT_EQ(pod.at("spec").at("schedulerName"), "volcano");
  EXPECT_EQ(pod.at("metadata").at("annotations").at("scheduling.k8s.io/group-name"), "mrpc");
  EXPECT_EQ(build_pod_group(job_in_cluster(manifest), {}).at("apiVersion"),
            "scheduling.volcano.sh/v1beta1");
}

// With --gang_scheduler_name the operator gives the job an empty schedulingPolicy.
json gang_pod_of(const std::string& gang_scheduler, const std::string& worker = "replicas: 2") {
  PodOptions options{"10.0.0.7:29400", "0a1b2c3d"};
  options.gang_scheduler = gang_scheduler;
  return build_pod(job_in_cluster(with("replicas: 2", worker,
                                       with("cleanPodPolicy: Running", "schedulingPolicy: {}"))),
                   1, options);
}

TEST(Pod, RunsWithTheGangSchedulerOfTheOperator) {
  const json volcano = gang_pod_of("volcano");
  EXPECT_EQ(volcano.at("spec").at("schedulerName"), "volcano");
  EXPECT_EQ(volcano.at("metadata").at("annotations").at("scheduling.k8s.io/group-name"), "mrpc");
  const json plugins = gang_pod_of("scheduler-plugins-scheduler");
  EXPECT_EQ(plugins.at("spec").at("schedulerName"), "scheduler-plugins-scheduler");
  EXPECT_EQ(plugins.at("metadata").at("labels").at("scheduling.x-k8s.io/pod-group"), "mrpc");
}

TEST(Pod, KeepsItsOwnSchedulerInAGangOfTheOperators) {
  for (const char* worker : {"replicas: 2\n    schedulerName: other",
                             "replicas: 2\n    podTemplate: {spec: {schedulerName: other}}"}) {
    const json pod = gang_pod_of("volcano", worker);
    EXPECT_EQ(pod.at("spec").at("schedulerName"), "other") << worker;
    EXPECT_EQ(pod.at("metadata").at("annotations").at("scheduling.k8s.io/group-name"), "mrpc");
  }
  const json pod =
      gang_pod_of("scheduler-plugins-scheduler", "replicas: 2\n    schedulerName: volcano");
  EXPECT_EQ(pod.at("metadata").at("labels").at("scheduling.x-k8s.io/pod-group"), "mrpc");
  EXPECT_FALSE(pod.at("metadata").at("annotations").contains("scheduling.k8s.io/group-name"));
}

TEST(PodGroup, HasTheApiOfTheOperatorsGangScheduler) {
  const api::TrainJob other = job_in_cluster(with("sharedMemory: 64Mi", "schedulerName: volcano"));
  EXPECT_EQ(build_pod_group(job_in_cluster(), {}, "volcano").at("apiVersion"),
            "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(build_pod_group(other, {}, "scheduler-plugins-scheduler").at("apiVersion"),
            "scheduling.x-k8s.io/v1alpha1");
}

TEST(Service, IsHeadlessAndPublishesNotReadyPods) {
  const json spec = build_service(job_in_cluster()).at("spec");
  EXPECT_EQ(spec.at("clusterIP"), "None");
  EXPECT_EQ(spec.at("publishNotReadyAddresses"), true);
  EXPECT_EQ(spec.at("selector"),
            json::parse(R"({"tilewright.dev/job-name": "mrpc", "tilewright.dev/role": "worker"})"));
}

TEST(Secret, HasTheKeyInTheFileThatThePodReads) {
  const json secret = build_secret(job_in_cluster(), "0a1b", "0a1b2c3d");
  EXPECT_EQ(secret.at("stringData"), json::parse(R"({"job-key": "0a1b"})"));
  EXPECT_EQ(secret.at("metadata").at("name"), "mrpc-job-key-uid-1-0a1b2c3d");
  EXPECT_EQ(secret.at("immutable"), true);
}

TEST(NetworkPolicy, OpensTransportToTheJobsPodsAndMetricsToAll) {
  EXPECT_EQ(build_network_policy(job_in_cluster(), {}).at("spec"), json::parse(R"({
    "podSelector": {"matchLabels": {"tilewright.dev/job-name": "mrpc",
                                    "tilewright.dev/role": "worker"}},
    "policyTypes": ["Ingress"],
    "ingress": [
      {"from": [{"podSelector": {"matchLabels":
          {"tilewright.dev/job-name": "mrpc", "tilewright.dev/role": "worker"}}}],
       "ports": [{"protocol": "TCP", "port": 29500}]},
      {"ports": [{"protocol": "TCP", "port": 9400}]}]})"));
  const json several =
      build_network_policy(job_in_cluster(with("nprocPerNode: 1", "nprocPerNode: 4")), {});
  EXPECT_EQ(several.at("spec").at("ingress").at(0).at("ports").at(0).at("endPort"), 29503);
}

TEST(NetworkPolicy, OpensMetricsToItsOwnAndTheGivenNamespacesOnly) {
  const json policy = build_network_policy(job_in_cluster(), {"monitoring", "sre"});
  EXPECT_EQ(policy.at("spec").at("ingress").at(1), json::parse(R"({
    "from": [
      {"podSelector": {}},
      {"namespaceSelector": {"matchExpressions": [
          {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["monitoring", "sre"]}]}}],
    "ports": [{"protocol": "TCP", "port": 9400}]})"));
}

json required_terms(const api::TrainJob& job) {
  PodOptions options{"10.0.0.7:29400", "0a1b2c3d"};
  options.node_constraint = {{"node-a", "node-b"}, "example.com/amx"};
  return build_pod(job, 0,
                   options)["spec"]["affinity"]["nodeAffinity"]
                           ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
}

TEST(Pod, AvoidsTheNodesThatLackTheInstructionSet) {
  EXPECT_EQ(required_terms(job_in_cluster()), json::parse(R"([
    {"matchExpressions": [{"key": "example.com/amx", "operator": "In", "values": ["true"]}],
     "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]},
                     {"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]}])"));
}

TEST(Pod, NarrowsEachOfTheJobsOwnNodeSelectorTerms) {
  api::TrainJob job = job_in_cluster();
  job.spec.worker.affinity =
      json::parse(R"({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
          {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]},
          {},
          {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]}]}]}}})");
  EXPECT_EQ(required_terms(job), json::parse(R"([
    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]},
                          {"key": "example.com/amx", "operator": "In", "values": ["true"]}],
     "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]},
                     {"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]},
    {},
    {"matchExpressions": [{"key": "example.com/amx", "operator": "In", "values": ["true"]}],
     "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
                     {"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]},
                     {"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]}])"))
      << "an empty term matches no node and stays as it is";
}

TEST(Pod, KeepsAnAffinityOfTheWrongTypeForTheApiServerToReject) {
  api::TrainJob job = job_in_cluster();
  for (const char* affinity : {R"({"nodeAffinity": "x"})", R"({"nodeAffinity": [1]})", "[]"}) {
    job.spec.worker.affinity = json::parse(affinity);
    PodOptions options{"10.0.0.7:29400", "0a1b2c3d"};
    options.node_constraint.excluded_nodes = {"node-a"};
    EXPECT_EQ(build_pod(job, 0, options)["spec"]["affinity"], json::parse(affinity));
  }
}

}  // namespace
}  // namespace tilewright::cluster
