// What a decoded manifest may not say, with the exact sentence.
#include "controller/api/validate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "controller/api/defaults.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::job_of;
using testing::kManifest;
using testing::refusal;
using testing::with;

struct Case {
  const char* place;
  const char* replacement;
  const char* sentence;
};

void expect_sentences(std::initializer_list<Case> cases, Target target = Target::kAnywhere) {
  for (const Case& bad : cases) {
    EXPECT_EQ(refusal(with(bad.place, bad.replacement), target), bad.sentence) << bad.replacement;
  }
}

TEST(Validate, HasNothingAgainstTheGoodManifest) {
  EXPECT_EQ(refusal(kManifest), "");
  EXPECT_EQ(refusal(kManifest, Target::kLocal), "");
  EXPECT_EQ(refusal(kManifest, Target::kCluster), "");
}

TEST(Validate, HoldsNamesToWhatPodsMayBeCalled) {
  expect_sentences({
      {"  name: mrpc", "  labels: {}",
       "job.yaml:3: metadata.name: found nothing, expected a name, or a generateName"},
      {"  name: mrpc", "  name: MRPC",
       "job.yaml:4: metadata.name: found MRPC, expected lower-case letters, digits and '-', a "
       "letter "
       "first and no '-' last"},
      {"  name: mrpc", "  name: 2mrpc",
       "job.yaml:4: metadata.name: found 2mrpc, expected lower-case letters, digits and '-', a "
       "letter "
       "first and no '-' last"},
      {"  name: mrpc", "  generateName: .mrpc-",
       "job.yaml:4: metadata.generateName: found .mrpc-, expected lower-case letters, digits and "
       "'-', "
       "a letter first and no '-' last"},
      {"  name: mrpc", "  name: mrpc\n  namespace: my.space",
       "job.yaml:5: metadata.namespace: found my.space, expected up to 63 lower-case letters, "
       "digits "
       "and '-'"},
      {"  name: mrpc", "  name: mrpc\n  labels: {team: a b}",
       "job.yaml:5: metadata.labels.team: found a b, expected up to 63 letters, digits, '-', '_' "
       "and "
       "'.'"},
  });
  // 63 - strlen("-worker-3") = 54.
  EXPECT_EQ(refusal(with("  name: mrpc", "  name: " + std::string(54, 'm'))), "");
  EXPECT_EQ(refusal(with("  name: mrpc", "  name: " + std::string(55, 'm'))),
            "job.yaml:4: metadata.name: found 55 letters, expected at most 54, so that the pod "
            "NAME-worker-3 has a name of at most 63");
  EXPECT_EQ(refusal(with("  name: mrpc", "  generateName: " + std::string(50, 'm'))),
            "job.yaml:4: metadata.generateName: found 50 letters, expected at most 49, so that the "
            "pod NAME-worker-3 has a name of at most 63");
}

TEST(Validate, HoldsReplicasBetweenTheirBounds) {
  expect_sentences({
      {"minReplicas: 1", "minReplicas: 5",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 5, expected at most 4, as "
       "spec.elasticPolicy.maxReplicas says"},
      {"minReplicas: 1", "minReplicas: 3",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 3, expected at most 2, as "
       "spec.worker.replicas says"},
      {"maxReplicas: 4", "maxReplicas: 1",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1, expected at least 2, as "
       "spec.worker.replicas says"},
      {"replicas: 2", "replicas: 0",
       "job.yaml:22: spec.worker.replicas: found 0, expected a whole number from 1 to 1000"},
      {"minReplicas: 1", "minReplicas: 0",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 0, expected a whole number from 1 to "
       "1000"},
      {"maxReplicas: 4", "maxReplicas: 1001",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1001, expected a whole number from 1 to "
       "1000"},
      {"nprocPerNode: 1", "nprocPerNode: 0",
       "job.yaml:6: spec.nprocPerNode: found 0, expected a whole number from 1 to 256"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tsl, value: \"true\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[0]: found the key \"tsl\", expected tls; did you "
       "mean tls?"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"yes\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[0]: found \"yes\" for tls, expected true or false"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"true\"}, {key: tls, value: \"false\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[1]: found the key tls again, expected it once"},
      {"rdzvBackend: c10d", "rdzvBackend: etcd",
       "job.yaml:8: spec.elasticPolicy.rdzvBackend: found etcd, expected c10d"},
      {"maxRestarts: 3", "maxRestarts: -1",
       "job.yaml:11: spec.elasticPolicy.maxRestarts: found -1, expected a whole number from 0 to "
       "1000000"},
  });
}

TEST(Validate, RefusesMoreShardsThanTheBatchAllows) {
  expect_sentences({
      {"learning_rate: 1e-4", "virtual_shards: 64",
       "job.yaml:19: spec.trainer.virtual_shards: found 64, expected no more than the global batch "
       "of "
       "32 examples (per_device_train_batch_size 16 x 2 processes x gradient_accumulation_steps "
       "1)"},
      {"learning_rate: 1e-4", "virtual_shards: 12",
       "job.yaml:19: spec.trainer.virtual_shards: found 12, expected a power of two"},
      {"learning_rate: 1e-4", "virtual_shards: 2",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 4 x nprocPerNode 1 = 4 processes, "
       "expected "
       "at most 2, the number of spec.trainer.virtual_shards"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: 1",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 4 x nprocPerNode 1 = 4 processes, "
       "expected "
       "at most 2, the largest power of two within the global batch of 2 examples "
       "(per_device_train_batch_size 1 x 2 processes x gradient_accumulation_steps 1)"},
  });
}

TEST(Validate, BoundsTheNumberOfProcesses) {
  EXPECT_EQ(
      refusal(
          with("maxReplicas: 4", "maxReplicas: 5", with("nprocPerNode: 1", "nprocPerNode: 256"))),
      "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1280 processes, expected at most 1024 "
      "(1024 virtual shards)");
}

TEST(Validate, CountsProcessesAndAccumulationIntoTheBatch) {
  const std::string manifest = with("nprocPerNode: 1", "nprocPerNode: 2");
  EXPECT_EQ(refusal(with("learning_rate: 1e-4", "virtual_shards: 64", manifest)), "");
  EXPECT_EQ(refusal(with("learning_rate: 1e-4",
                         "gradient_accumulation_steps: 2\n    virtual_shards: 64")),
            "");
}

TEST(Validate, RefusesTwoNamesOfOneThingThatDiffer) {
  expect_sentences({
      {"cleanPodPolicy: Running", "backoffLimit: 5",
       "job.yaml:13: spec.runPolicy.backoffLimit: found 5, expected 3, as "
       "spec.elasticPolicy.maxRestarts says, or only one of the two"},
      {"cleanPodPolicy: Running", "backoffLimit: 3", ""},
  });
  EXPECT_EQ(*job_of(with("    maxRestarts: 3\n  runPolicy:\n    cleanPodPolicy: Running",
                         "  runPolicy:\n    backoffLimit: 5"))
                 .spec.elastic_policy.max_restarts,
            5);
}

TEST(Validate, HoldsTheRunPolicyToItsRanges) {
  expect_sentences({
      {"cleanPodPolicy: Running", "activeDeadlineSeconds: 0",
       "job.yaml:13: spec.runPolicy.activeDeadlineSeconds: found 0, expected a whole number from 1 "
       "to "
       "316224000"},
      {"cleanPodPolicy: Running", "ttlSecondsAfterFinished: -1",
       "job.yaml:13: spec.runPolicy.ttlSecondsAfterFinished: found -1, expected a whole number "
       "from 0 "
       "to 316224000"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 5}",
       "job.yaml:13: spec.runPolicy.schedulingPolicy.minAvailable: found 5, expected a whole "
       "number "
       "from 1 to 4"},
  });
}

TEST(Validate, RefusesUnknownTasks) {
  expect_sentences({
      {"task: mrpc", "task: sst-2",
       "job.yaml:15: spec.trainer.task: found sst-2, expected one of cola, mrpc, rte, sst2; did "
       "you "
       "mean sst2?"},
      {"task: mrpc", "task: squad",
       "job.yaml:15: spec.trainer.task: found squad, expected one of cola, mrpc, rte, sst2"},
      {"    task: mrpc\n", "",
       "job.yaml:14: spec.trainer.task: found nothing, expected one of cola, mrpc, rte, sst2"},
  });
}

TEST(Validate, FollowsPathsToTheirVolumes) {
  expect_sentences({
      {"    data: data:MRPC\n", "",
       "job.yaml:14: spec.trainer.data: found nothing, expected VOLUME:relative/path"},
      {"data: data:MRPC", "data: /data/MRPC",
       "job.yaml:17: spec.trainer.data: found /data/MRPC, expected VOLUME:relative/path"},
      {"data: data:MRPC", "data: dta:MRPC",
       "job.yaml:17: spec.trainer.data: found the volume dta, expected one of spec.volumes "
       "(models, "
       "data, output)"},
      {"data: data:MRPC", "data: data:/MRPC",
       "job.yaml:17: spec.trainer.data: found data:/MRPC, expected a path relative to the volume"},
      {"data: data:MRPC", "data: data:a/../../b",
       "job.yaml:17: spec.trainer.data: found data:a/../../b, expected a path that stays in its "
       "volume, without '..'"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:$(JOB)",
       "job.yaml:18: spec.trainer.output: found $(JOB), which no plain value of spec.worker.env "
       "sets, "
       "expected a variable such as $(TILEWRIGHT_JOB_NAME)"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:.",
       "job.yaml:18: spec.trainer.output: found output:., expected a folder on the volume, not the "
       "volume itself"},
      {"{claimName: tilewright-output}", "{claimName: tilewright-output, readOnly: true}",
       "job.yaml:18: spec.trainer.output: found the volume output, which is read-only, expected "
       "one "
       "that can be written"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: elsewhere:x",
       "job.yaml:19: spec.trainer.resume_from_checkpoint: found the volume elsewhere, expected one "
       "of "
       "spec.volumes (models, data, output)"},
      {"data: data:MRPC", "data: \"data:\"", ""},
      {"data: data:MRPC", "data: data:$$(MRPC)", ""},
  });
}

TEST(Validate, LooksAtPathsAsTheirVariablesMakeThem) {
  const std::string manifest =
      with("output:$(TILEWRIGHT_JOB_NAME)", "output:$(SUB)/$(TILEWRIGHT_JOB_NAME)");
  const auto env = [&](const char* value) {
    return with("sharedMemory: 64Mi",
                "env:\n      - {name: UP, value: ..}\n      - {name: SUB, value: \"" +
                    std::string(value) + "\"}",
                manifest);
  };
  EXPECT_EQ(refusal(env("runs")), "");
  EXPECT_EQ(
      refusal(env("$(UP)/x")),
      "job.yaml:18: spec.trainer.output: found output:../x/mrpc, expected a path that stays in "
      "its volume, without '..'");
  EXPECT_EQ(
      refusal(with("data: data:MRPC", "data: $(TILEWRIGHT_JOB_NAME):x")),
      "job.yaml:17: spec.trainer.data: found $(TILEWRIGHT_JOB_NAME):x, expected a volume's plain "
      "name");
}

TEST(Validate, WantsFlagsAsFieldsNotAsArgs) {
  expect_sentences({
      {"learning_rate: 1e-4", "args: [\"--seed=1\"]",
       "job.yaml:19: spec.trainer.args[0]: found --seed, expected the field spec.trainer.seed"},
      {"learning_rate: 1e-4", "args: [\"--max_workers\", \"3\"]",
       "job.yaml:19: spec.trainer.args[0]: found --max_workers, expected nothing: the runtime sets "
       "it"},
      {"learning_rate: 1e-4", "args: [\"--a_newer_flag=$(HOME)\"]", ""},
      {"learning_rate: 1e-4", "do_train: false\n    do_eval: false",
       "job.yaml:19: spec.trainer.do_train: found do_train and do_eval false, expected at least "
       "one of "
       "them true"},
  });
}

TEST(Validate, HoldsResourcesAgainstEachOther) {
  expect_sentences({
      {"sharedMemory: 64Mi", "sharedMemory: 2Gi",
       "job.yaml:28: spec.worker.sharedMemory: found 2Gi, expected less than 2Gi, as "
       "spec.worker.resources.memory says: pages of /dev/shm count against it"},
      {"memory: 2Gi", "memory: 2",
       "job.yaml:27: spec.worker.resources.memory: found 2 (2 bytes), expected at least 128Mi"},
      {"memory: 2Gi", "memory: 500m",
       "job.yaml:27: spec.worker.resources.memory: found 500m (1 bytes), expected at least 128Mi"},
      {"cpu: 1", "cpu: 0",
       "job.yaml:26: spec.worker.resources.cpu: found 0, expected more than "
       "nothing"},
      {"memory: 2Gi", "memroy: 2Gi",
       "job.yaml:27: spec.worker.resources.memroy: is not a known resource; did you mean memory?"},
      {"memory: 2Gi", "memory: 2Gi\n      example.org/device: 1", ""},
  });
}

TEST(Validate, WarnsOfCpusThatCannotBePinned) {
  const auto checked = check_manifest(with("cpu: 1", "cpu: 1500m"), "job.yaml", Target::kAnywhere);
  ASSERT_TRUE(checked.ok());
  ASSERT_EQ(checked->warnings.size(), 1u);
  EXPECT_EQ(
      checked->warnings[0].sentence("job.yaml"),
      "job.yaml:26: spec.worker.resources.cpu: found 1500m, which is no whole number of CPUs: "
      "the kubelet's static CPU manager cannot pin such a worker");
}

TEST(Validate, WarnsOfContainersBesideTheWorkerThatEndItsGuarantee) {
  const auto advice = [](const std::string& container) {
    const std::string overlay =
        "podTemplate: {spec: {containers: [{name: side, image: s, " + container + "}]}}";
    const auto checked =
        check_manifest(with("sharedMemory: 64Mi", overlay), "job.yaml", Target::kAnywhere);
    std::string sentences;
    for (const FieldError& warning : checked->warnings) {
      sentences += warning.sentence("job.yaml");
    }
    return sentences;
  };
  const auto sentence = [](const std::string& limit, const std::string& request,
                           const std::string& resource) {
    return "job.yaml:28: spec.worker.podTemplate.spec.containers[0].resources: found " + limit +
           " as limit and " + request + " as request of " + resource +
           ", expected the same amount: pods are not Guaranteed with this container, so that no "
           "worker's CPUs are pinned, and a node short of memory evicts them sooner";
  };
  EXPECT_EQ(advice("env: []"), sentence("nothing", "nothing", "cpu"));
  EXPECT_EQ(advice("resources: {limits: {cpu: 100m}}"), sentence("nothing", "nothing", "memory"));
  EXPECT_EQ(advice("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m}}"),
            sentence("1", "100m", "cpu"));
  EXPECT_EQ(advice("resources: {requests: {cpu: 1, memory: 1Gi}}"),
            sentence("nothing", "1", "cpu"));
  EXPECT_EQ(advice("resources: {limits: {cpu: 1, memory: 1Gi}}"), "");
  EXPECT_EQ(advice("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: "
                   "1024Mi}}"),
            "");
}

TEST(Validate, HoldsTheRestOfTheWorkerToKubernetesRules) {
  expect_sentences({
      {"sharedMemory: 64Mi", "env: [{name: RANK, value: \"0\"}]",
       "job.yaml:28: spec.worker.env[0].name: found RANK, expected a name that the runtime does "
       "not "
       "set itself"},
      {"sharedMemory: 64Mi", "env: [{name: A}, {name: A}]",
       "job.yaml:28: spec.worker.env[1].name: found A twice, expected each name once"},
      {"sharedMemory: 64Mi", "env: [{name: a=b}]",
       "job.yaml:28: spec.worker.env[0].name: found a=b, expected a variable's name"},
      {"sharedMemory: 64Mi", "env: [{name: A, value: b, valueFrom: {}}]",
       "job.yaml:28: spec.worker.env[0]: found value and valueFrom, expected one of them"},
      {"sharedMemory: 64Mi", "runAsUser: 0",
       "job.yaml:28: spec.worker.runAsUser: found 0, expected a whole number from 1 to 2147483647"},
      {"sharedMemory: 64Mi", "nodeSelector: {a b: c}",
       "job.yaml:28: spec.worker.nodeSelector[\"a b\"]: found c, expected a node's label and its "
       "value"},
      {"sharedMemory: 64Mi", "serviceAccountName: My_Account",
       "job.yaml:28: spec.worker.serviceAccountName: found My_Account, expected lower-case "
       "letters, "
       "digits, '-' and '.'"},
      {"image: tilewright-worker:0.1.0", "image: my image",
       "job.yaml:23: spec.worker.image: found my image, expected an image's name without blanks"},
      {"sharedMemory: 64Mi", "terminationGracePeriodSeconds: -1",
       "job.yaml:28: spec.worker.terminationGracePeriodSeconds: found -1, expected a whole number "
       "from "
       "0 to 86400"},
  });
}

TEST(Validate, HoldsVolumesToOneSourceAndOneName) {
  expect_sentences({
      {"- name: data", "- name: output",
       "job.yaml:17: spec.trainer.data: found the volume data, expected one of spec.volumes "
       "(models, "
       "output, output)\n"
       "job.yaml:36: spec.volumes[2].name: found output twice, expected each name once"},
      {"- name: data", "- name: data\n      emptyDir: {}",
       "job.yaml:33: spec.volumes[1]: found emptyDir and persistentVolumeClaim, expected one "
       "volume "
       "source"},
      {"persistentVolumeClaim: {claimName: tilewright-data}",
       "persistentVolumeClame: {claimName: tilewright-data}",
       "job.yaml:35: spec.volumes[1].persistentVolumeClame: is not a known field; did you mean "
       "persistentVolumeClaim?"},
      {"{claimName: tilewright-data}", "{claimNam: tilewright-data}",
       "job.yaml:35: spec.volumes[1].persistentVolumeClaim.claimName: found nothing, expected a "
       "claim's name\n"
       "job.yaml:35: spec.volumes[1].persistentVolumeClaim.claimNam: is not a known field; did you "
       "mean "
       "claimName?"},
      {"      local: data\n      persistentVolumeClaim: {claimName: tilewright-data}\n", "",
       "job.yaml:33: spec.volumes[1]: found the name data alone, expected a volume source such as "
       "persistentVolumeClaim, a local folder, or both"},
      {"- name: output", "- name: tilewright-output",
       "job.yaml:18: spec.trainer.output: found the volume output, expected one of spec.volumes "
       "(models, data, tilewright-output)\n"
       "job.yaml:36: spec.volumes[2].name: found tilewright-output, expected a name that does not "
       "begin with tilewright-, as the operator's own volumes do"},
  });
}

TEST(ValidateForLocal, WantsALocalSideOfEveryVolume) {
  const std::string manifest = with("      local: data\n", "");
  EXPECT_EQ(refusal(manifest), "");
  EXPECT_EQ(refusal(manifest, Target::kCluster), "");
  EXPECT_EQ(
      refusal(manifest, Target::kLocal),
      "job.yaml:33: spec.volumes[1].local: found nothing, expected the folder that stands for "
      "the volume data on this machine");
}

TEST(ValidateForLocal, WantsPlainVariables) {
  const std::string manifest =
      with("sharedMemory: 64Mi", "env: [{name: N, valueFrom: {fieldRef: {fieldPath: x}}}]");
  EXPECT_EQ(refusal(manifest, Target::kCluster), "");
  EXPECT_EQ(refusal(manifest, Target::kLocal),
            "job.yaml:28: spec.worker.env[0].valueFrom: found a reference for N, expected a plain "
            "value: outside a cluster there is nothing to look it up in");
}

TEST(ValidateForCluster, WantsASourceOfEveryVolume) {
  const std::string manifest =
      with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "");
  EXPECT_EQ(refusal(manifest, Target::kLocal), "");
  EXPECT_EQ(refusal(manifest, Target::kCluster),
            "job.yaml:33: spec.volumes[1]: found no volume source for data, expected one such as "
            "persistentVolumeClaim");
}

TEST(ValidateForCluster, RefusesWhatRestrictedPodSecurityForbids) {
  const auto overlay = [](const std::string& text) {
    return refusal(with("sharedMemory: 64Mi", "podTemplate: " + text), Target::kCluster);
  };
  EXPECT_EQ(refusal(with("persistentVolumeClaim: {claimName: tilewright-data}",
                         "hostPath: {path: /data}"),
                    Target::kCluster),
            "job.yaml:35: spec.volumes[1].hostPath: found hostPath, which restricted Pod Security "
            "forbids, expected a persistentVolumeClaim");
  EXPECT_EQ(
      overlay("{spec: {hostNetwork: true}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.hostNetwork: found true, which restricted Pod "
      "Security forbids, expected false");
  EXPECT_EQ(
      overlay("{spec: {containers: [{name: worker, securityContext: {privileged: true}}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].securityContext.privileged: found "
      "true, which restricted Pod Security forbids, expected false");
  EXPECT_EQ(overlay("{spec: {securityContext: {runAsUser: 0}}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.securityContext.runAsUser: found 0, which "
            "restricted Pod Security forbids, expected a user other than root");
  EXPECT_EQ(
      overlay("{spec: {initContainers: [{name: i, securityContext: {capabilities: {add: "
              "[SYS_ADMIN]}}}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.initContainers[0].securityContext.capabilities."
      "add[0]: found \"SYS_ADMIN\", which restricted Pod Security forbids, expected no "
      "capability");
  EXPECT_EQ(overlay("{spec: {volumes: [{name: h, hostPath: {path: /}}]}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.volumes[0].hostPath: found hostPath, which "
            "restricted Pod Security forbids, expected a persistentVolumeClaim");
  for (const char* source : {"nfs", "iscsi", "image", "photonPersistentDisk"}) {
    const std::string volumes = fmt::format("volumes: [{{name: h, {}: {{a: b}}}}]", source);
    const std::string sentence = fmt::format(
        "found {}, which restricted Pod Security forbids, expected a "
        "persistentVolumeClaim",
        source);
    EXPECT_EQ(overlay("{spec: {" + volumes + "}}"),
              fmt::format("job.yaml:28: spec.worker.podTemplate.spec.volumes[0].{}: {}", source,
                          sentence));
  }
  for (const char* drop : {"[]", "[NET_RAW, all]"}) {
    for (const char* containers : {"containers: [{name: worker", "containers: [{name: side",
                                   "initContainers: [{name: side"}) {
      const std::string list =
          fmt::format("{}, securityContext: {{capabilities: {{drop: {}}}}}}}]", containers, drop);
      EXPECT_EQ(overlay("{spec: {" + list + "}}"),
                fmt::format("job.yaml:28: spec.worker.podTemplate.spec.{}[0].securityContext."
                            "capabilities.drop: found a list without ALL, which restricted Pod "
                            "Security forbids, expected ALL in it",
                            list.substr(0, list.find(':'))));
    }
  }
  EXPECT_EQ(overlay("{spec: {containers: [{name: worker, securityContext: {capabilities: {add: "
                    "[NET_BIND_SERVICE], drop: [NET_RAW, ALL]}}}]}}"),
            "");
  EXPECT_EQ(overlay("{spec: {volumes: [{name: a, secret: {secretName: s}}, {name: b, csi: {driver: "
                    "d}}, {name: c, ephemeral: {a: b}}]}}"),
            "");
  EXPECT_EQ(overlay("{metadata: {annotations: {a: b}}, spec: {priority: 1}}"), "");
}

TEST(Validate, KeepsTheOverlayFromTheOperatorsBusiness) {
  const auto overlay = [](const std::string& text) {
    return refusal(with("sharedMemory: 64Mi", "podTemplate: " + text));
  };
  EXPECT_EQ(
      overlay("{spec: {restartPolicy: Always}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.restartPolicy: found a value, expected nothing: "
      "spec.worker.restartPolicy says it");
  EXPECT_EQ(
      overlay("{metadata: {name: x}}"),
      "job.yaml:28: spec.worker.podTemplate.metadata.name: found a value, expected nothing: the "
      "operator names its pods");
  EXPECT_EQ(
      overlay("{spec: {containers: [{name: worker, image: x}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].image: found a value, expected "
      "nothing: spec.worker.image says it");
  EXPECT_EQ(
      overlay("{spec: {containers: [{name: worker, env: [{name: A}, {name: RANK}]}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].env[1].name: found RANK, expected a "
      "name that the runtime does not set itself");
  EXPECT_EQ(overlay("{spec: {containers: [{name: side, env: [{name: RANK}]}]}}"), "");
  EXPECT_EQ(
      overlay("{spec: {containers: [{image: x}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].name: found nothing, expected a "
      "container's name (worker is the operator's)");
  EXPECT_EQ(overlay("{specs: {}}"),
            "job.yaml:28: spec.worker.podTemplate.specs: is not a known field; a pod template has "
            "metadata and spec");
  for (const char* field : {"terminationMessagePolicy: File", "terminationMessagePath: /tmp/x"}) {
    const std::string name = std::string(field).substr(0, std::string_view(field).find(':'));
    const auto containers = [&](const char* container) {
      return fmt::format("{{spec: {{containers: [{{name: {}, {}}}]}}}}", container, field);
    };
    EXPECT_EQ(overlay(containers("worker")),
              "job.yaml:28: spec.worker.podTemplate.spec.containers[0]." + name +
                  ": found a value, expected nothing: the operator reads the last lines of its "
                  "log");
    EXPECT_EQ(overlay(containers("side")), "");
  }
  EXPECT_EQ(
      overlay("{spec: {volumes: [{name: mine, emptyDir: {}}, {name: tilewright-shm}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.volumes[1].name: found tilewright-shm, expected a "
      "name that does not begin with tilewright-, as the operator's own volumes do");
  EXPECT_EQ(
      overlay("{spec: {initContainers: [{name: worker, image: i}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.initContainers[0].name: found worker, expected "
      "another name: the operator's container has it");
}

TEST(Validate, KeepsTheOverlayFromTheOperatorsMounts) {
  const auto mounted = [](const std::string& container, const std::string& path) {
    return refusal(with(
        "sharedMemory: 64Mi",
        "podTemplate: {spec: {containers: [{name: " + container +
            ", volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: " + path + "}]}]}}"));
  };
  const std::string field =
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].volumeMounts[1].mountPath: found ";
  for (const std::string path :
       {"/dev/shm", "/dev/shm/", "//dev//shm", "/dev/./shm", "/mnt/../dev/shm", "dev/shm"}) {
    EXPECT_EQ(mounted("worker", path),
              field + path + ", expected another path: spec.worker.sharedMemory says it");
  }
  for (const std::string path : {"/var/run/tilewright", "/var/run/tilewright/job-key"}) {
    EXPECT_EQ(mounted("worker", path),
              field + path + ", expected another path: the operator puts the job's key there");
  }
  EXPECT_EQ(mounted("worker", "/dev/shmem"), "");
  EXPECT_EQ(mounted("worker", "/var/run"), "");
  EXPECT_EQ(mounted("side", "/dev/shm"), "");
}

// Each of these took something away from the pod: its securityContext, its worker, its volumes.
TEST(Validate, TakesNothingAwayByTheOverlay) {
  const auto overlay = [](const std::string& text) {
    return refusal(with("sharedMemory: 64Mi", "podTemplate: " + text), Target::kCluster);
  };
  const std::string why = ": the overlay adds to what the operator makes and removes nothing of it";
  const std::string place = "job.yaml:28: spec.worker.podTemplate.";
  const std::string directive = ": found a directive of strategic merge, expected a plain field";
  const std::string nothing = ": found nothing, expected a value";
  EXPECT_EQ(overlay("{spec: {securityContext: {$patch: delete}}}"),
            place + "spec.securityContext.$patch" + directive + why);
  EXPECT_EQ(overlay("{spec: {containers: [{name: side, image: i}, {name: worker, $patch: "
                    "delete}]}}"),
            place + "spec.containers[1].$patch" + directive + why);
  EXPECT_EQ(overlay("{spec: {volumes: [{name: data, $patch: replace}]}}"),
            place + "spec.volumes[0].$patch" + directive + why);
  EXPECT_EQ(overlay("{spec: {containers: [{name: worker, volumeMounts: [{$patch: replace}]}]}}"),
            place + "spec.containers[0].volumeMounts[0].$patch" + directive + why);
  EXPECT_EQ(overlay("{spec: {$retainKeys: [containers]}}"),
            place + "spec.$retainKeys" + directive + why);
  EXPECT_EQ(overlay("{metadata: {$deleteFromPrimitiveList/finalizers: [a]}}"),
            place + "metadata[\"$deleteFromPrimitiveList/finalizers\"]" + directive + why);
  EXPECT_EQ(overlay("{spec: {securityContext: null}}"),
            place + "spec.securityContext" + nothing + why);
  EXPECT_EQ(overlay("{spec: {restartPolicy: null}}"), place + "spec.restartPolicy" + nothing + why);
  EXPECT_EQ(
      overlay("{spec: {containers: [{name: worker, securityContext: {capabilities: null}}]}}"),
      place + "spec.containers[0].securityContext.capabilities" + nothing + why);
  EXPECT_EQ(overlay("{spec: null}"), place + "spec" + nothing + why);
  EXPECT_EQ(overlay("{metadata: {annotations: {a: $(B)}}, spec: {hostAliases: [{ip: 192.0.2.1, "
                    "hostnames: [$a]}]}}"),
            "");
}

TEST(Defaults, FillWhatWasLeftOutAndNothingTwice) {
  TrainJob job;
  apply_defaults(job);
  EXPECT_EQ(job.spec.worker.replicas, 1);
  EXPECT_EQ(job.spec.elastic_policy.min_replicas, 1);
  EXPECT_EQ(job.spec.elastic_policy.max_replicas, 1);
  EXPECT_EQ(job.spec.elastic_policy.max_restarts, 3);
  EXPECT_EQ(job.spec.worker.restart_policy, RestartPolicy::kOnFailure);
  EXPECT_EQ(job.spec.run_policy.clean_pod_policy, CleanPodPolicy::kRunning);
  EXPECT_EQ(job.spec.worker.resources.at("cpu").text, "1");
  const TrainJob once = job;
  apply_defaults(job);
  EXPECT_TRUE(job == once);
}

TEST(Defaults, TakeTheBoundsFromTheReplicas) {
  const TrainJob job = job_of(with("    minReplicas: 1\n    maxReplicas: 4\n", ""));
  EXPECT_EQ(job.spec.elastic_policy.min_replicas, 2);
  EXPECT_EQ(job.spec.elastic_policy.max_replicas, 2);
}

}  // namespace
}  // namespace tilewright::api
