// Compares what a real API server with the CRD rejects and accepts with validate().
#include <fmt/ranges.h>

#include <cmath>

#include "common/contract/tasks.h"
#include "common/contract/training_flags.h"
#include "controller/api/command.h"
#include "tests/integration/crd_fixture.h"

namespace tilewright::testing {
namespace {

using api::testing::with;
using nlohmann::json;
using ::testing::HasSubstr;

class CrdValidation : public CrdTest {};

struct InvalidManifest {
  const char* place;
  const char* replacement;
  const char* field;
  std::string sentence;
  bool same_message_as_validate = true;  // validate() reports the same message
};

TEST_F(CrdValidation, RejectsWhatValidateRejects) {
  const InvalidManifest cases[] = {
      {"  name: mrpc", "  name: 2mrpc", "metadata.name",
       "found 2mrpc, expected lower-case letters, digits and '-', starting with a letter and not "
       "ending with '-'"},
      {"  name: mrpc", "  name: mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
       "metadata.name",
       "found 55 characters, expected at most 54: the pod name NAME-worker-3 has at most 63"},
      {"minReplicas: 1", "minReplicas: 5", "spec.elasticPolicy.minReplicas",
       "found 5, expected at most 4, the value of spec.elasticPolicy.maxReplicas"},
      {"minReplicas: 1", "minReplicas: 3", "spec.elasticPolicy.minReplicas",
       "found 3, expected at most 2, the value of spec.worker.replicas"},
      {"maxReplicas: 4", "maxReplicas: 1", "spec.elasticPolicy.maxReplicas",
       "found 1, expected at least 2, the value of spec.worker.replicas"},
      {"replicas: 2", "replicas: 0", "spec.worker.replicas",
       "found 0, expected an integer from 1 to 1000"},
      {"maxReplicas: 4", "maxReplicas: 1001", "spec.elasticPolicy.maxReplicas",
       "found 1001, expected an integer from 1 to 1000"},
      {"nprocPerNode: 1", "nprocPerNode: 0", "spec.nprocPerNode",
       "found 0, expected an integer from 1 to 256"},
      {"nprocPerNode: 1", "nprocPerNode: gpu", "spec.nprocPerNode",
       "found gpu, expected auto, cpu or an integer from 1 to 256", false},
      {"rdzvBackend: c10d", "rdzvBackend: etcd", "spec.elasticPolicy.rdzvBackend",
       "supported values: \"c10d\"", false},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tsl, value: \"true\"}]",
       "spec.elasticPolicy.rdzvConf[0].key",
       "supported values: \"tls\", \"keep_alive_interval\", \"keep_alive_max_attempt\"", false},
      {"rdzvBackend: c10d", "rdzvConf: [{key: keep_alive_interval, value: \"0\"}]",
       "spec.elasticPolicy.rdzvConf[0]",
       "found \"0\" for keep_alive_interval, expected a number above 0 and up to 86400"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: keep_alive_max_attempt, value: five}]",
       "spec.elasticPolicy.rdzvConf[0]",
       "found \"five\" for keep_alive_max_attempt, expected a number above 0 and up to 86400"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"yes\"}]",
       "spec.elasticPolicy.rdzvConf[0]", "found \"yes\" for tls, expected true or false"},
      {"maxRestarts: 3", "maxRestarts: -1", "spec.elasticPolicy.maxRestarts",
       "found -1, expected an integer from 0 to 1000000"},
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
       "found 5, expected 3, the value of spec.elasticPolicy.maxRestarts, or only one of the two "
       "fields"},
      {"cleanPodPolicy: Running", "cleanPodPolicy: Some", "spec.runPolicy.cleanPodPolicy",
       "supported values: \"None\", \"Running\", \"All\"", false},
      {"cleanPodPolicy: Running", "activeDeadlineSeconds: 0",
       "spec.runPolicy.activeDeadlineSeconds", "found 0, expected an integer from 1 to 316224000"},
      {"cleanPodPolicy: Running", "ttlSecondsAfterFinished: -1",
       "spec.runPolicy.ttlSecondsAfterFinished",
       "found -1, expected an integer from 0 to 316224000"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 5}",
       "spec.runPolicy.schedulingPolicy.minAvailable", "found 5, expected an integer from 1 to 4"},
      {"task: mrpc", "task: swag", "spec.trainer.task",
       fmt::format("supported values: \"{}\"", fmt::join(task_names(), "\", \"")), false},
      {"    task: mrpc\n", "", "spec.trainer.task",
       fmt::format("found nothing, expected one of {}", fmt::join(task_names(), ", "))},
      {"    output: output:$(TILEWRIGHT_JOB_NAME)\n", "", "spec.trainer.output",
       "found nothing, expected VOLUME:relative/path"},
      {"    model: models:minilm\n", "", "spec.trainer.model",
       "found nothing, expected VOLUME:relative/path or a name on the hub such as "
       "google-bert/bert-base-uncased"},
      {"model: models:minilm", "model: /models/minilm", "spec.trainer.model",
       "found /models/minilm, expected VOLUME:relative/path or a name on the hub such as "
       "google-bert/bert-base-uncased"},
      {"model: models:minilm", "model: models:/minilm", "spec.trainer.model",
       "found models:/minilm, expected a path relative to the volume"},
      {"model: models:minilm", "model: bert..base", "spec.trainer.model",
       "found bert..base, expected VOLUME:relative/path or a name on the hub such as "
       "google-bert/bert-base-uncased"},
      {"learning_rate: 1e-4", "tokenizer_name: a/b/c", "spec.trainer.tokenizer_name",
       "found a/b/c, expected VOLUME:relative/path or a name on the hub such as "
       "google-bert/bert-base-uncased"},
      {"learning_rate: 1e-4", "cache: hub", "spec.trainer.cache",
       "found hub, expected VOLUME:relative/path"},
      {"learning_rate: 1e-4", "cache_dir: elsewhere:hub", "spec.trainer.cache",
       "found the volume elsewhere, expected one of spec.volumes ("},
      {"data: data:MRPC", "data: /data/MRPC", "spec.trainer.data",
       "found /data/MRPC, expected VOLUME:relative/path"},
      {"data: data:MRPC", "data: dta:MRPC", "spec.trainer.data",
       "found the volume dta, expected one of spec.volumes ("},
      {"data: data:MRPC", "data: data:/MRPC", "spec.trainer.data",
       "found data:/MRPC, expected a path relative to the volume"},
      {"data: data:MRPC", "data: data:a/../../b", "spec.trainer.data",
       "found data:a/../../b, expected a path that stays in its volume, without '..'"},
      {"data: data:MRPC", "data: data:MRPC\n    data_dir: data:RTE", "spec.trainer.data_dir",
       "found data:RTE, expected data:MRPC, the value of data, or only one of the two fields"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:$(JOB)", "spec.trainer.output",
       "which no plain value of spec.worker.env sets, expected a variable such as "
       "$(TILEWRIGHT_JOB_NAME)"},
      {"    data: data:MRPC", "    data_dir: elsewhere:MRPC", "spec.trainer.data",
       "found the volume elsewhere, expected one of spec.volumes ("},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:.", "spec.trainer.output",
       "found output:., expected a directory on the volume, not the volume itself"},
      {"{claimName: tilewright-output}", "{claimName: tilewright-output, readOnly: true}",
       "spec.trainer.output",
       "found the volume output, which is read-only, expected a writable volume"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: elsewhere:x",
       "spec.trainer.resume_from_checkpoint",
       "found the volume elsewhere, expected one of spec.volumes ("},
      {"learning_rate: 1e-4", "args: [\"--max_workers\", \"3\"]", "spec.trainer.args[0]",
       "--max_workers: must not be set: the operator sets it"},
      {"learning_rate: 1e-4", "args: [\"--lerning_rate=1\"]", "spec.trainer.args[0]",
       "--lerning_rate: unknown flag"},
      {"learning_rate: 1e-4", "args: [\"--token=hf_1\"]", "spec.trainer.args[0]",
       "--token: must not be set; set HF_TOKEN in spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "args: [--config, a.json]", "spec.trainer.args[0]",
       "--config: expected flags, not a file of flags"},
      {"learning_rate: 1e-4", "do_train: false\n    do_eval: false", "spec.trainer.do_train",
       "found do_train=false and do_eval=false, expected at least one of them, or do_predict, "
       "true"},
      {"learning_rate: 1e-4", "lerning_rate: 1e-4", "lerning_rate", "unknown field", false},
      {"sharedMemory: 64Mi", "sharedMemory: 2Gi", "spec.worker.sharedMemory",
       "found 2Gi, expected less than 2Gi, the value of spec.worker.resources.memory: pages of "
       "/dev/shm "
       "count against it"},
      {"memory: 2Gi", "memory: 2", "spec.worker.resources", "expected at least 128Mi"},
      {"memory: 2Gi", "memory: two", "spec.worker.resources[memory]",
       "expected a quantity such as 2, 500m or 2Gi"},
      {"cpu: 1", "cpu: 0", "spec.worker.resources[cpu]", "found 0, expected a quantity above zero"},
      {"memory: 2Gi", "memroy: 2Gi", "spec.worker.resources", "memroy"},
      {"sharedMemory: 64Mi", "env: [{name: RANK, value: \"0\"}]", "spec.worker.env[0].name",
       "found RANK, expected a name that the operator does not set itself"},
      {"sharedMemory: 64Mi", "env: [{name: A}, {name: A}]", "spec.worker.env[1]", "Duplicate value",
       false},
      {"sharedMemory: 64Mi", "env: [{name: a=b}]", "spec.worker.env[0].name",
       "found a=b, expected the name of an environment variable"},
      {"sharedMemory: 64Mi", "env: [{name: A, value: b, valueFrom: {}}]", "spec.worker.env[0]",
       "found value and valueFrom, expected one of them"},
      {"sharedMemory: 64Mi", "runAsUser: 0", "spec.worker.runAsUser",
       "found 0, expected an integer from 1 to 2147483647"},
      {"sharedMemory: 64Mi", "nodeSelector: {a b: c}", "spec.worker.nodeSelector",
       "expected a node's label and its value"},
      {"sharedMemory: 64Mi", "serviceAccountName: My_Account", "spec.worker.serviceAccountName",
       "found My_Account, expected lower-case letters, digits, '-' and '.'"},
      {"image: tilewright-worker:0.1.0", "image: my image", "spec.worker.image",
       "found my image, expected an image name without whitespace"},
      {"restartPolicy: OnFailure", "restartPolicy: Sometimes", "spec.worker.restartPolicy",
       fmt::format("supported values: \"{}\"",
                   fmt::join(api::enum_names(api::RestartPolicy()), "\", \"")),
       false},
      {"sharedMemory: 64Mi", "terminationGracePeriodSeconds: -1",
       "spec.worker.terminationGracePeriodSeconds",
       "found -1, expected an integer from 0 to 86400"},
      {"- name: data", "- name: Data", "spec.volumes[1].name",
       "found Data, expected up to 63 lower-case letters, digits and '-'"},
      {"- name: data", "- name: tilewright-data", "spec.volumes[1].name",
       "found tilewright-data, expected a name that does not start with tilewright-, which is "
       "reserved for the operator's volumes"},
      {"- name: data", "- name: data\n      emptyDir: {}", "spec.volumes[1]",
       "expected one volume source"},
      {"      persistentVolumeClaim: {claimName: tilewright-data}\n", "", "spec.volumes[1]",
       "found no volume source for data, expected one such as persistentVolumeClaim"},
      {"persistentVolumeClaim: {claimName: tilewright-data}", "hostPath: {path: /data}",
       "spec.volumes[1].hostPath",
       "found hostPath, which restricted Pod Security forbids, expected a persistentVolumeClaim"},
      {"{claimName: tilewright-data}", "{claimName: My_Claim}",
       "spec.volumes[1].persistentVolumeClaim.claimName",
       "found My_Claim, expected the name of a claim"},
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
       "spec.worker.podTemplate.spec.volumes[0]",
       "found hostPath, which restricted Pod Security forbids, expected a persistentVolumeClaim"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, securityContext: {capabilities: {drop: "
       "[]}}}]}}",
       "spec.worker.podTemplate.spec.containers[0].securityContext.capabilities.drop",
       "found a list without ALL, which restricted Pod Security forbids, expected ALL in it"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {initContainers: [{name: i, securityContext: {capabilities: {drop: "
       "[NET_RAW]}}}]}}",
       "spec.worker.podTemplate.spec.initContainers[0].securityContext.capabilities.drop",
       "found a list without ALL, which restricted Pod Security forbids, expected ALL in it"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {volumes: [{name: tilewright-shm, emptyDir: {}}]}}",
       "spec.worker.podTemplate.spec.volumes[0].name",
       "found tilewright-shm, expected a name that does not start with tilewright-, which is "
       "reserved for the operator's volumes"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, volumeMounts: [{name: v, mountPath: "
       "/dev/shm}]}]}}",
       "spec.worker.podTemplate.spec.containers[0].volumeMounts",
       "found /dev/shm, expected another path: use spec.worker.sharedMemory"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, volumeMounts: [{name: v, mountPath: "
       "/var/run/tilewright}]}]}}",
       "spec.worker.podTemplate.spec.containers[0].volumeMounts",
       "found /var/run/tilewright, expected another path: the operator mounts the job's key there"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, volumeMounts: [{name: v, mountPath: "
       "/var/run/tilewright/job-key}]}]}}",
       "spec.worker.podTemplate.spec.containers[0].volumeMounts",
       "expected another path: the operator mounts the job's key there"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, terminationMessagePolicy: File}]}}",
       "spec.worker.podTemplate.spec.containers[0].terminationMessagePolicy",
       "must not be set: the operator reads the last lines of its log"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, terminationMessagePath: /tmp/x}]}}",
       "spec.worker.podTemplate.spec.containers[0].terminationMessagePath",
       "must not be set: the operator reads the last lines of its log"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {initContainers: [{name: worker, image: i}]}}",
       "spec.worker.podTemplate.spec.initContainers[0].name",
       "found worker, expected another name: it is the name of the operator's container"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {restartPolicy: Always}}",
       "spec.worker.podTemplate.spec.restartPolicy",
       "must not be set: use spec.worker.restartPolicy"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {containers: [{name: worker, image: x}]}}",
       "spec.worker.podTemplate.spec.containers[0].image",
       "must not be set: use spec.worker.image"},
      {"sharedMemory: 64Mi", "podTemplate: {spec: {containers: [{name: pytorch, image: i}]}}",
       "spec.worker.podTemplate.spec.containers[0].name",
       "found pytorch, expected no training beside the worker's: put its flags into spec.trainer"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: side, image: i, command: [torchrun, "
       "/workspace/run_qa.py]}]}}",
       "spec.worker.podTemplate.spec.containers[0].command[1]",
       "expected no training beside the worker's: put its flags into spec.trainer"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {initContainers: [{name: side, image: i, args: [-m, "
       "torch.distributed.run]}]}}",
       "spec.worker.podTemplate.spec.initContainers[0].args[1]",
       "expected no training beside the worker's: put its flags into spec.trainer"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {volumes: [{name: dshm, emptyDir: {medium: Memory}}]}}",
       "spec.worker.podTemplate.spec.volumes[0]",
       "found the memory volume dshm, expected spec.worker.sharedMemory, which sets the size of "
       "/dev/shm"},
      {"  volumes:\n", "  volumes:\n    - {name: dshm, emptyDir: {medium: Memory}}\n",
       "spec.volumes[0]",
       "found the memory volume dshm, expected spec.worker.sharedMemory, which sets the size of "
       "/dev/shm"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: side, image: i, ports: [{containerPort: "
       "9400}]}]}}",
       "spec.worker.podTemplate.spec.containers[0].ports[0].containerPort",
       "found 9400, expected another port: the worker listens on this one"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {containers: [{name: worker, env: [{name: RANK, value: \"1\"}]}]}}",
       "spec.worker.podTemplate.spec.containers[0].env",
       "expected a name that the operator does not set itself"},
  };
  for (const InvalidManifest& bad : cases) {
    const std::string manifest = with(bad.place, bad.replacement);
    const HttpResponse answer = admin().post(kDryRunPath, parse_yaml(manifest));
    EXPECT_FALSE(answer.ok()) << bad.replacement;
    EXPECT_THAT(answer.message(), HasSubstr(bad.field)) << bad.replacement;
    EXPECT_THAT(answer.message(), HasSubstr(bad.sentence)) << bad.replacement;
    if (bad.same_message_as_validate) {
      EXPECT_THAT(validation_error(manifest), HasSubstr(bad.sentence)) << bad.replacement;
    } else {
      EXPECT_NE(validation_error(manifest), "") << bad.replacement;
    }
  }
}

TEST_F(CrdValidation, RejectsEveryVolumeThatRestrictedPodSecurityForbids) {
  for (const std::string kind : {"hostPath",
                                 "nfs",
                                 "iscsi",
                                 "fc",
                                 "rbd",
                                 "cephfs",
                                 "glusterfs",
                                 "gitRepo",
                                 "azureDisk",
                                 "azureFile",
                                 "cinder",
                                 "flocker",
                                 "flexVolume",
                                 "image",
                                 "photonPersistentDisk",
                                 "portworxVolume",
                                 "quobyte",
                                 "scaleIO",
                                 "storageos",
                                 "vsphereVolume",
                                 "awsElasticBlockStore",
                                 "gcePersistentDisk"}) {
    const std::string manifest = with(
        "sharedMemory: 64Mi", "podTemplate: {spec: {volumes: [{name: v, " + kind + ": {a: b}}]}}");
    const std::string sentence =
        "found " + kind +
        ", which restricted Pod Security forbids, expected a persistentVolumeClaim";
    const HttpResponse answer = admin().post(kDryRunPath, parse_yaml(manifest));
    EXPECT_FALSE(answer.ok()) << kind;
    EXPECT_THAT(answer.message(), HasSubstr(sentence));
    EXPECT_THAT(validation_error(manifest), HasSubstr(sentence));
  }
}

// The CRD lists these variables twice, because CEL rules cannot share a list.
TEST_F(CrdValidation, RejectsEveryVariableThatTheRuntimeSets) {
  EXPECT_GT(api::runtime_variables().size(), 10U);
  for (const std::string name : api::runtime_variables()) {
    const std::string env = "env: [{name: " + name + "}]";
    for (const std::string& replacement :
         {env, "podTemplate: {spec: {containers: [{name: worker, " + env + "}]}}"}) {
      const std::string manifest = with("sharedMemory: 64Mi", replacement);
      const HttpResponse answer = admin().post(kDryRunPath, parse_yaml(manifest));
      EXPECT_FALSE(answer.ok()) << replacement;
      EXPECT_THAT(answer.message(), HasSubstr("that the operator does not set itself"));
      EXPECT_THAT(validation_error(manifest), HasSubstr("that the operator does not set itself"));
    }
  }
}

TEST_F(CrdValidation, AcceptsWhatValidateAccepts) {
  const std::string longest_name = "model: org/" + std::string(96, 'n');
  const std::pair<const char*, std::string> cases[] = {
      {"learning_rate: 1e-4", "learning_rate: 0"},
      {"learning_rate: 1e-4", "ddp_backend: ccl"},
      {"nprocPerNode: 1", "nprocPerNode: auto"},
      {"nprocPerNode: 1", "nprocPerNode: cpu"},
      {"learning_rate: 1e-4", "task_name: mrpc\n    output_dir: output:$(TILEWRIGHT_JOB_NAME)"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: output:old/checkpoint-5"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: \"\""},
      {"    model: models:minilm", "    model_name_or_path: models:minilm"},
      {"model: models:minilm", "model: google-bert/bert_base.uncased-2"},
      {"model: models:minilm", longest_name},
      {"model: models:minilm", "model: bert-base-uncased\n    tokenizer_name: bert-base-cased"},
      {"data: data:MRPC", "cache: data:hub"},
      {"    task: mrpc\n    model: models:minilm\n    data: data:MRPC",
       "    dataset_name: squad\n    model: bert-base-uncased"},
      {"    task: mrpc\n    model: models:minilm\n    data: data:MRPC",
       "    dataset_name: data:squad\n    model: bert-base-uncased"},
      {"    task: mrpc\n    model: models:minilm\n    data: data:MRPC",
       "    train_file: data:a.csv\n    do_train: true\n    model: bert-base-uncased"},
      {"    task: mrpc\n    model: models:minilm\n    data: data:MRPC\n    output: "
       "output:$(TILEWRIGHT_JOB_NAME)",
       "    args: [--model_name_or_path, bert-base-uncased, --task-name=MRPC, --output_dir, "
       "\"output:a\", --use_ipex, --no_cuda, \"True\", --fp16, \"False\", --no_tf32]"},
      {"learning_rate: 1e-4",
       "use_ipex: true\n    dataloader_pin_memory: false\n    ddp_timeout: 1800"},
      {"data: data:MRPC", "data: \"data:\""},
      {"data: data:MRPC", "data: data:$$(MRPC)"},
      {"data: data:MRPC", "data: data:a..b/..."},
      {"sharedMemory: 64Mi", "env: [{name: A, value: a}, {name: B, value: $(A)}]"},
      {"output:$(TILEWRIGHT_JOB_NAME)", "output:$(TILEWRIGHT_JOB_UID)/$(TILEWRIGHT_JOB_UID)/$$(X)"},
      {"sharedMemory: 64Mi", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"},
      {"memory: 2Gi", "memory: 2Gi\n      example.org/device: 1\n      hugepages-2Mi: 4Mi"},
      {"cpu: 1", "cpu: 1500m"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"true\"}]"},
      {"rdzvBackend: c10d",
       "rdzvConf: [{key: keep_alive_interval, value: \"2.5\"}, {key: keep_alive_max_attempt, "
       "value: \"2\"}]"},
      {"sharedMemory: 64Mi",
       "nodeSelector: {example.org/pool: cpu}\n    imagePullSecrets: [{name: "
       "registry}]"},
      {"sharedMemory: 64Mi",
       "tolerations: [{key: a, operator: Exists}]\n    affinity: {nodeAffinity: {}}"},
      {"sharedMemory: 64Mi",
       "podTemplate: {metadata: {annotations: {a: b}}, spec: {priority: 1, containers: [{name: "
       "sidecar, image: x, env: [{name: RANK}], ports: [{containerPort: 80}]}]}}"},
      {"sharedMemory: 64Mi",
       "podTemplate: {spec: {volumes: [{name: a, emptyDir: {}}, {name: b, csi: {driver: d}}], "
       "containers: [{name: worker, volumeMounts: [{name: a, mountPath: /dev/shmem}], "
       "securityContext: {capabilities: {drop: [NET_RAW, ALL]}}}, {name: side, image: s, "
       "terminationMessagePolicy: File, volumeMounts: [{name: tilewright-shm, mountPath: "
       "/dev/shm}]}]}}"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 2, queue: q}"},
      {"    maxRestarts: 3\n  runPolicy:\n    cleanPodPolicy: Running",
       "  runPolicy:\n    backoffLimit: 5\n    suspend: true"},
      {"persistentVolumeClaim: {claimName: tilewright-data}", "configMap: {name: data}"},
      {"{claimName: tilewright-data}", "{claimName: " + std::string(253, 'a') + "}"},
      {"sharedMemory: 64Mi", "nodeSelector: {" + std::string(64, 'a') + "/zone: a}"},
  };
  for (const auto& [place, replacement] : cases) {
    const std::string manifest = with(place, replacement);
    EXPECT_EQ(validation_error(manifest), "") << replacement;
    const HttpResponse answer = admin().post(kDryRunPath, parse_yaml(manifest));
    ASSERT_TRUE(answer.ok()) << replacement << ": " << answer.message();
    // Decoding and encoding keep every field, known and unknown.
    const api::DecodeResult by_api_server =
        api::decode_object(answer.json(), api::FieldValidation::kStrict);
    ASSERT_TRUE(by_api_server.ok()) << sentences(by_api_server.errors);
    api::TrainJob from_manifest = api::testing::decode_manifest(manifest).job;
    EXPECT_EQ(by_api_server.job.spec.trainer, from_manifest.spec.trainer) << replacement;
    EXPECT_EQ(by_api_server.job.spec.volumes, from_manifest.spec.volumes) << replacement;
    EXPECT_EQ(by_api_server.job.spec.worker.env, from_manifest.spec.worker.env) << replacement;
    EXPECT_EQ(by_api_server.job.spec.worker.pod_template, from_manifest.spec.worker.pod_template)
        << replacement;
    EXPECT_EQ(by_api_server.job.spec.worker.tolerations, from_manifest.spec.worker.tolerations)
        << replacement;
    EXPECT_EQ(by_api_server.job.spec.worker.affinity, from_manifest.spec.worker.affinity)
        << replacement;
  }
}

TEST_F(CrdValidation, ExpandsVariablesInPaths) {
  const std::string named = with("data: data:MRPC", "data: data:$(A)/$(A)/$(B)");
  const auto verdict = [&](const char* env) {
    const std::string manifest = with("sharedMemory: 64Mi", env, named);
    const HttpResponse answer = admin().post(kDryRunPath, parse_yaml(manifest));
    EXPECT_EQ(answer.ok(), validation_error(manifest).empty()) << env << answer.message();
    return answer.ok();
  };
  EXPECT_TRUE(verdict("env: [{name: A, value: a}, {name: B, value: b}]"));
  EXPECT_FALSE(verdict("env: [{name: A, value: a}]"));
  EXPECT_FALSE(
      verdict("env: [{name: A, value: a}, {name: B, valueFrom: {fieldRef: {fieldPath: x}}}]"));
}

// crds/README.md documents these cases.
TEST_F(CrdValidation, DiffersFromValidateInKnownCases) {
  struct Verdicts {
    bool by_api_server, by_validate;
    bool operator==(const Verdicts&) const = default;
  };
  const auto verdicts_of = [&](const std::string& manifest) {
    return Verdicts{admin().post(kDryRunPath, parse_yaml(manifest)).ok(),
                    validation_error(manifest).empty()};
  };
  constexpr Verdicts kOnlyApiServerAccepts{true, false};
  constexpr Verdicts kOnlyValidateAccepts{false, true};
  // CEL cannot expand the variables of a path.
  EXPECT_EQ(verdicts_of(with("sharedMemory: 64Mi", "env: [{name: UP, value: ..}]",
                             with("data: data:MRPC", "data: data:$(UP)"))),
            kOnlyApiServerAccepts);
  // CEL cannot access fields whose names begin with '$' or that the schema does not declare.
  for (const char* overlay : {"{spec: {securityContext: {$patch: delete}}}",
                              "{spec: {containers: [{name: worker, $patch: delete}]}}",
                              "{spec: {volumes: [{name: data, $patch: replace}]}}",
                              "{spec: {enableServiceLinks: null}}"}) {
    EXPECT_EQ(verdicts_of(with("sharedMemory: 64Mi", "podTemplate: " + std::string(overlay))),
              kOnlyApiServerAccepts)
        << overlay;
  }
  // The API server drops null for declared fields, so the null removes nothing.
  const HttpResponse accepted = admin().post(
      kDryRunPath,
      parse_yaml(with("sharedMemory: 64Mi",
                      "podTemplate: {spec: {restartPolicy: null, securityContext: null}}")));
  ASSERT_TRUE(accepted.ok()) << accepted.message();
  EXPECT_EQ(accepted.json()["spec"]["worker"]["podTemplate"], json::parse(R"({"spec": {}})"));
  // A search within a script, and comparisons with lists elsewhere in the spec, cost CEL too much.
  for (const char* overlay :
       {"{spec: {containers: [{name: side, command: [sh, -c], args: ['cd /w; torchrun a.py']}]}}",
        "{spec: {volumes: [{name: data, emptyDir: {}}]}}",
        "{spec: {containers: [{name: worker, volumeMounts: [{name: v, mountPath: "
        "/mnt/tilewright/data}]}]}}",
        "{spec: {containers: [{name: worker, ports: [{containerPort: 81, name: metrics}]}]}}"}) {
    EXPECT_EQ(verdicts_of(with("sharedMemory: 64Mi", "podTemplate: " + std::string(overlay))),
              kOnlyApiServerAccepts)
        << overlay;
  }
  // The CRD does not normalize paths.
  EXPECT_EQ(
      verdicts_of(with("sharedMemory: 64Mi",
                       "podTemplate: {spec: {containers: [{name: worker, volumeMounts: [{name: v, "
                       "mountPath: //dev/shm}]}]}}")),
      kOnlyApiServerAccepts);
  // CEL does not compare flags with each other.
  for (const char* flags : {"load_best_model_at_end: true", "gemm_backend: onednn\n    exact: true",
                            "eval_strategy: epoch\n    metric_for_best_model: bleu"}) {
    EXPECT_EQ(verdicts_of(with("learning_rate: 1e-4", flags)), kOnlyApiServerAccepts) << flags;
  }
  // Length limits of the CRD, which bound the cost of its CEL rules.
  EXPECT_EQ(verdicts_of(with("data: data:MRPC", "data: data:" + std::string(1020, 'a'))),
            kOnlyValidateAccepts);
}

// A schema cannot declare the types number-or-string or object-or-string.
TEST_F(CrdValidation, RejectsTypesThatValidateRejects) {
  for (const auto& [place, replacement] :
       {std::pair("cpu: 1", "cpu: 0.5"),
        std::pair("sharedMemory: 64Mi", "imagePullSecrets: [registry]")}) {
    const std::string manifest = with(place, replacement);
    EXPECT_FALSE(admin().post(kDryRunPath, parse_yaml(manifest)).ok()) << replacement;
    EXPECT_NE(validation_error(manifest), "") << replacement;
  }
}

// Values at and beyond the limits of every flag's range.
TEST_F(CrdValidation, EnforcesTheRangeOfEveryTrainingFlag) {
  int rejected = 0;
  for (const TrainingFlag& flag : training_flags()) {
    if (!flag.in_manifest() || flag.volume_path || flag.name == "task_name" ||
        flag.name == "model_name_or_path" || flag.name == "data_dir" || flag.name == "output_dir") {
      continue;
    }
    std::vector<json> values = {"a string", true, 1, -1, 0, -2};
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
    for (const ChoiceSynonym& synonym : flag.synonyms) values.emplace_back(synonym.word);
    if (flag.type == FlagType::kString) values.emplace_back(std::string(5000, 'a'));
    for (const json& value : values) {
      json object =
          parse_yaml(with("    learning_rate: 1e-4\n    per_device_train_batch_size: 16\n", ""));
      json& trainer = object["spec"]["trainer"];
      // Only validate() compares these flags with eval_strategy.
      if (flag.name == "load_best_model_at_end" || flag.name == "save_strategy") {
        trainer["eval_strategy"] = "epoch";
      }
      trainer[std::string(flag.name)] = value;
      const std::string by_validate = validation_error(object.dump());
      const HttpResponse by_api_server = admin().post(kDryRunPath, object);
      EXPECT_EQ(by_api_server.ok(), by_validate.empty())
          << flag.name << ": " << value.dump().substr(0, 80)
          << "\nAPI server: " << (by_api_server.ok() ? "accepts it" : by_api_server.message())
          << "\ncontroller/api: " << by_validate;
      if (by_api_server.ok()) continue;
      ++rejected;
      EXPECT_THAT(by_api_server.message(), HasSubstr(flag.name));
    }
  }
  EXPECT_GT(rejected, 100);
}

}  // namespace
}  // namespace tilewright::testing
