// Tests the decoder (the exact error for each kind of invalid manifest) and the encoder (round
// trips).
#include "controller/api/decode.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/contract/virtual_shards.h"
#include "common/json/yaml.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::decode_manifest;
using testing::errors_of;
using testing::expect_errors;
using testing::kManifest;
using testing::with;

TEST(Decode, AcceptsAValidManifest) {
  const DecodeResult decoded = decode_manifest(kManifest);
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  const TrainJobSpec& spec = decoded.job.spec;
  EXPECT_EQ(decoded.job.metadata.name, "mrpc");
  EXPECT_EQ(spec.elastic_policy.max_replicas, 4);
  EXPECT_EQ(spec.run_policy.clean_pod_policy, CleanPodPolicy::kRunning);
  EXPECT_EQ(spec.trainer.model, "models:minilm");
  EXPECT_EQ(spec.trainer.flags.at("learning_rate"), "0.0001");
  EXPECT_EQ(spec.worker.resources.at("cpu"), *parse_quantity("1"));
  EXPECT_EQ(spec.worker.resources.at("memory"), *parse_quantity("2Gi"));
  EXPECT_EQ(spec.worker.restart_policy, RestartPolicy::kOnFailure);
  ASSERT_EQ(spec.volumes.size(), 3u);
  EXPECT_EQ(spec.volumes[1].local, "data");
  EXPECT_EQ(spec.volumes[1].source["persistentVolumeClaim"]["claimName"], "tilewright-data");
}

TEST(Decode, AcceptsTheExamples) {
  for (const char* name : {"trainjob.yaml", "squad.yaml"}) {
    const auto text = read_file(tilewright::testing::source_dir() / "examples" / name,
                                kMaxManifestBytes, ExitCode::kManifest);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(errors_of(*text, Target::kLocal), "") << name;
    EXPECT_EQ(errors_of(*text, Target::kCluster), "") << name;
  }
}

TEST(Decode, SuggestsTheNearestKnownField) {
  expect_errors({
      {"minReplicas:", "minReplica:",
       "job.yaml:9: spec.elasticPolicy.minReplica: unknown field; did you mean "
       "minReplicas?"},
      {"learning_rate", "lerning_rate",
       "job.yaml:19: spec.trainer.lerning_rate: unknown field; did you mean learning_rate?"},
      {"learning_rate", "lr",
       "job.yaml:19: spec.trainer.lr: unknown field; did you mean "
       "spec.trainer.learning_rate?"},
      {"sharedMemory", "sharedMemroy",
       "job.yaml:28: spec.worker.sharedMemroy: unknown field; did you mean sharedMemory?"},
      {"  runPolicy", "  runpolicy",
       "job.yaml:12: spec.runpolicy: unknown field; did you mean runPolicy?"},
      {"local: data", "locale: data",
       "job.yaml:34: spec.volumes[1].locale: unknown field; did you mean local?"},
      {"  name: mrpc", "  nmae: mrpc",
       "job.yaml:4: metadata.nmae: unknown field; did you mean name?"},
      {"kind: TrainJob", "kind: TrainJob\nxyzzy: 1", "job.yaml:3: xyzzy: unknown field"},
      {"    sharedMemory: 64Mi", "    volumes: []",
       "job.yaml:28: spec.worker.volumes: unknown field; did you mean spec.volumes?"},
      {"    cleanPodPolicy", "    restartPolicy: Never\n    cleanPodPolicy",
       "job.yaml:13: spec.runPolicy.restartPolicy: unknown field; did you mean "
       "spec.worker.restartPolicy?"},
      {"      memory: 2Gi", "      limits: {cpu: 1}",
       "job.yaml:27: spec.worker.resources.limits: unknown field; did you mean "
       "spec.worker.resources.cpu and .memory?"},
      {"rdzvBackend: c10d", "rdzvId: a",
       "job.yaml:8: spec.elasticPolicy.rdzvId: only in a PyTorchJob: the workers rendezvous "
       "through the operator"},
      {"rdzvBackend: c10d", "standalone: true",
       "job.yaml:8: spec.elasticPolicy.standalone: only in a PyTorchJob: the workers rendezvous "
       "through the operator"},
      {"rdzvBackend: c10d", "metrics: []",
       "job.yaml:8: spec.elasticPolicy.metrics: only in a PyTorchJob: no HorizontalPodAutoscaler "
       "is created; create one whose scaleTargetRef is the TrainJob"},
      {"  nprocPerNode: 1", "  pytorchReplicaSpecs: {}",
       "job.yaml:6: spec.pytorchReplicaSpecs: unknown field; did you mean spec.worker?"},
      {"    replicas: 2", "    replicas: 2\n    num_train_epochs: 3",
       "job.yaml:23: spec.worker.num_train_epochs: unknown field; did you mean "
       "spec.trainer.num_train_epochs?"},
  });
}

TEST(Decode, ReportsTheTypeItFound) {
  expect_errors({
      {"replicas: 2", "replicas: two",
       "job.yaml:22: spec.worker.replicas: found the string \"two\", expected an integer from 1 to "
       "1000"},
      {"replicas: 2", "replicas: 1.5",
       "job.yaml:22: spec.worker.replicas: found the number 1.5, expected an integer from 1 to "
       "1000"},
      {"replicas: 2", "replicas: [2]",
       "job.yaml:22: spec.worker.replicas: found a list, expected an integer from 1 to 1000"},
      {"replicas: 2", "replicas: 99999999999999999999",
       "job.yaml:22: spec.worker.replicas: found the number 1e+20, expected an integer from 1 to "
       "1000"},
      {"image: tilewright-worker:0.1.0", "image: 12",
       "job.yaml:23: spec.worker.image: found the number 12, expected a string (put it in quotes)"},
      {"  name: mrpc", "  name: true",
       "job.yaml:4: metadata.name: found the boolean true, expected a string (put it in quotes)"},
      {"cleanPodPolicy: Running", "suspend: maybe",
       "job.yaml:13: spec.runPolicy.suspend: found the string \"maybe\", expected true or false"},
      {"cleanPodPolicy: Running", "cleanPodPolicy: Some",
       "job.yaml:13: spec.runPolicy.cleanPodPolicy: found the string \"Some\", expected one of "
       "None, "
       "Running, All"},
      {"restartPolicy: OnFailure", "restartPolicy: onFailure",
       fmt::format("job.yaml:24: spec.worker.restartPolicy: found the string \"onFailure\", "
                   "expected one of {}",
                   fmt::join(enum_names(RestartPolicy()), ", "))},
      {"memory: 2Gi", "memory: 2GiB",
       "job.yaml:27: spec.worker.resources.memory: found the string \"2GiB\", expected a quantity "
       "such as 2, 500m or 2Gi; did you mean 2Gi?"},
      {"memory: 2Gi", "memory: -1",
       "job.yaml:27: spec.worker.resources.memory: found the number -1, expected a quantity such "
       "as 2, 500m or 2Gi, above zero"},
      {"cpu: 1", "cpu: 0.5",
       "job.yaml:26: spec.worker.resources.cpu: found the number 0.5, expected \"0.5\" in quotes: "
       "the API server accepts an integer or a string"},
      {"cpu: 1", "cpu: \"0.5\"", ""},
      {"    sharedMemory: 64Mi", "    imagePullSecrets: [regcred]",
       "job.yaml:28: spec.worker.imagePullSecrets: found the string \"regcred\", expected objects "
       "such as {name: regcred}"},
      {"    sharedMemory: 64Mi", "    imagePullSecrets: regcred",
       "job.yaml:28: spec.worker.imagePullSecrets: found the string \"regcred\", expected a list"},
      {"  runPolicy:\n    cleanPodPolicy: Running", "  runPolicy: Running",
       "job.yaml:12: spec.runPolicy: found the string \"Running\", expected an object"},
      {"    sharedMemory: 64Mi", "    env: {A: b}",
       "job.yaml:28: spec.worker.env: found an object, expected a list"},
      {"    sharedMemory: 64Mi", "    env: [A]",
       "job.yaml:28: spec.worker.env[0]: found the string \"A\", expected an object"},
      {"    sharedMemory: 64Mi", "    env: [{name: A, value: 1}]",
       "job.yaml:28: spec.worker.env[0].value: found the number 1, expected a string (put it in "
       "quotes)"},
      {"    sharedMemory: 64Mi", "    nodeSelector: {disk: true}",
       "job.yaml:28: spec.worker.nodeSelector.disk: found the boolean true, expected a string (put "
       "it in quotes)"},
      {"    sharedMemory: 64Mi", "    tolerations: {}",
       "job.yaml:28: spec.worker.tolerations: found an object, expected a list"},
      {"    learning_rate: 1e-4", "    args: [--seed, 1]",
       "job.yaml:19: spec.trainer.args[1]: found the number 1, expected a string (put it in "
       "quotes)"},
      {"  volumes:\n    - name: models\n      local: ../models\n",
       "  volumes:\n    -\n    - name: models\n      local: ../models\n",
       "job.yaml:29: spec.volumes[0]: found nothing, expected an object"},
  });
}

TEST(Decode, ChecksTrainingFlags) {
  expect_errors({
      {"learning_rate: 1e-4", "learning_rate: fast",
       "job.yaml:19: spec.trainer.learning_rate: found the string \"fast\", expected a number from "
       "0 to 100"},
      {"learning_rate: 1e-4", "learning_rate: -1",
       "job.yaml:19: spec.trainer.learning_rate: found -1, expected a number from 0 to 100"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: 0",
       "job.yaml:20: spec.trainer.per_device_train_batch_size: found 0, expected an integer "
       "from 1 to 65536"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: \"16\"",
       "job.yaml:20: spec.trainer.per_device_train_batch_size: found the string \"16\", expected "
       "an integer from 1 to 65536; write it without quotes"},
      {"learning_rate: 1e-4", "learning_rate: \"1e-4\"",
       "job.yaml:19: spec.trainer.learning_rate: found the string \"1e-4\", expected a number from "
       "0 to 100; write it without quotes"},
      {"learning_rate: 1e-4", "group_by_length: \"true\"",
       "job.yaml:19: spec.trainer.group_by_length: found the string \"true\", expected true or "
       "false; write it without quotes"},
      {"learning_rate: 1e-4", "use_ipex: true", ""},
      {"learning_rate: 1e-4", "use_ipex: maybe",
       "job.yaml:19: spec.trainer.use_ipex: found the string \"maybe\", expected true or false"},
      {"learning_rate: 1e-4", "token: hf_1",
       "job.yaml:19: spec.trainer.token: must not be set; set HF_TOKEN "
       "in spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "evaluation_strategy: epoch",
       "job.yaml:19: spec.trainer.evaluation_strategy: unknown field; did you mean "
       "spec.trainer.eval_strategy?"},
      {"learning_rate: 1e-4", "fp16: true",
       "job.yaml:19: spec.trainer.fp16: not supported: use bf16, which needs no loss scaling"},
      {"learning_rate: 1e-4", "lr_scheduler_type: cosine", ""},
      {"learning_rate: 1e-4", "lr_scheduler_type: step",
       "job.yaml:19: spec.trainer.lr_scheduler_type: found step, expected one of linear, constant, "
       "constant_with_warmup, cosine, cosine_with_restarts, polynomial"},
      {"learning_rate: 1e-4", "save_strategy: no",
       "job.yaml:19: spec.trainer.save_strategy: found the boolean false, expected one of no, "
       "steps, "
       "epoch, best (YAML reads yes, no, on and off as booleans; put the value in quotes)"},
      {"learning_rate: 1e-4", "bf16: 1",
       "job.yaml:19: spec.trainer.bf16: found the number 1, expected true or false"},
      {"learning_rate: 1e-4", "run_name: 7",
       "job.yaml:19: spec.trainer.run_name: found the number 7, expected a string of up to 4096 "
       "bytes"},
      {"learning_rate: 1e-4", "nominal_workers: 2",
       "job.yaml:19: spec.trainer.nominal_workers: must not be set: the value "
       "follows from spec.worker.replicas, spec.elasticPolicy.maxReplicas and spec.nprocPerNode"},
      {"learning_rate: 1e-4", "task_name: sst2",
       "job.yaml:19: spec.trainer.task_name: found sst2, expected mrpc, the value of task, or "
       "only one of the two fields"},
  });
  EXPECT_EQ(errors_of(with("task: mrpc", "task_name: mrpc")), "");
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4", "save_strategy: \"no\"")), "");
}

// The words of a script's command line, with the paths of a manifest.
TEST(Decode, ReadsArgumentsIntoTheFieldsOfTheTrainer) {
  const std::string manifest = with(
      "    task: mrpc\n    model: models:minilm\n    data: data:MRPC\n"
      "    output: output:$(TILEWRIGHT_JOB_NAME)\n    learning_rate: 1e-4\n"
      "    per_device_train_batch_size: 16\n",
      "    args: [--model_name_or_path, distilbert-base-uncased, --dataset_name, squad, "
      "--do_train,\n"
      "      --do_eval, --per_device_train_batch_size=32, --num-train-epochs, \"1\", "
      "--output_dir,\n"
      "      \"output:debug_squad/\", --overwrite_output_dir, \"True\", --no_cuda, --fp16, "
      "\"False\",\n"
      "      --xpu_backend, ccl, --no_bf16, --seed, \"1\", --seed=2, \"\\\\\"]\n"
      "    cache: data:hub\n    learning_rate: 3e-5\n");
  const DecodeResult decoded = decode_manifest(manifest);
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  Trainer expected;
  expected.model = "distilbert-base-uncased";
  expected.output = "output:debug_squad/";
  expected.cache = "data:hub";
  expected.flags = {{"dataset_name", "squad"}, {"do_train", "true"},
                    {"do_eval", "true"},       {"per_device_train_batch_size", "32"},
                    {"num_train_epochs", "1"}, {"overwrite_output_dir", "true"},
                    {"no_cuda", "true"},       {"ddp_backend", "ccl"},
                    {"bf16", "false"},         {"seed", "2"},
                    {"learning_rate", "3e-05"}};
  EXPECT_EQ(decoded.job.spec.trainer, expected) << to_json(decoded.job)["spec"]["trainer"];
  EXPECT_EQ(errors_of(manifest), "");
  // A later error names the field and the line of its argument.
  EXPECT_EQ(errors_of(with("output:debug_squad/", "/tmp/debug_squad/", manifest)),
            "job.yaml:16: spec.trainer.output: found /tmp/debug_squad/, expected "
            "VOLUME:relative/path");
}

TEST(Decode, RejectsArgumentsThatNoManifestCanHave) {
  expect_errors({
      {"learning_rate: 1e-4", "args: [--max_workers, \"3\"]",
       "job.yaml:19: spec.trainer.args[0]: --max_workers: must not be set: the operator sets it"},
      {"learning_rate: 1e-4", "args: []", ""},
      {"learning_rate: 1e-4", "args: [\"--lerning_rate=1e-4\"]",
       "job.yaml:19: spec.trainer.args[0]: --lerning_rate: unknown flag; did you mean "
       "--learning_rate?"},
      {"learning_rate: 1e-4", "args: [\"--num_train=2\"]",
       "job.yaml:19: spec.trainer.args[0]: --num_train: unknown flag; did you mean "
       "--num_train_epochs?"},
      {"learning_rate: 1e-4", "args: [--use_auth_token, hf_1]",
       "job.yaml:19: spec.trainer.args[0]: --use_auth_token: must not be set; set HF_TOKEN in "
       "spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "args: [--hub_token, hf_1]",
       "job.yaml:19: spec.trainer.args[0]: --hub_token: must not be set; set HF_TOKEN in "
       "spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "push_to_hub_token: hf_1",
       "job.yaml:19: spec.trainer.push_to_hub_token: must not be set; set HF_TOKEN in "
       "spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "args: [--use_ipex, \"--a_newer_flag=$(HOME)\"]",
       "job.yaml:19: spec.trainer.args[1]: --a_newer_flag: unknown flag"},
      {"learning_rate: 1e-4", "args: [--do_eval, \"--seed=seven\"]",
       "job.yaml:19: spec.trainer.args[1]: --seed: found seven, expected an integer from 0 to "
       "4294967295"},
      {"learning_rate: 1e-4", "args: [--seed]",
       "job.yaml:19: spec.trainer.args[0]: --seed: found no value, expected an integer from 0 to "
       "4294967295"},
      {"learning_rate: 1e-4", "args: [word]",
       "job.yaml:19: spec.trainer.args[0]: found the argument \"word\", expected --flag=value"},
      {"learning_rate: 1e-4", "args: [arguments.json]",
       "job.yaml:19: spec.trainer.args[0]: found the argument \"arguments.json\", expected "
       "--flag=value"},
      {"learning_rate: 1e-4", "args: [--config, arguments.json]",
       "job.yaml:19: spec.trainer.args[0]: --config: expected flags, not a file of flags"},
      {"learning_rate: 1e-4", "args: [--fp16]",
       "job.yaml:19: spec.trainer.args[0]: --fp16: not supported: use bf16, which needs no loss "
       "scaling"},
      {"learning_rate: 1e-4", "args: [--token, hf_1]",
       "job.yaml:19: spec.trainer.args[0]: --token: must not be set; set HF_TOKEN in "
       "spec.worker.env from a Secret"},
      {"learning_rate: 1e-4", "learning_rate: 1e-4\n    args: [--learning-rate=1e-4]",
       "job.yaml:20: spec.trainer.args[0]: --learning-rate: must not be set: "
       "spec.trainer.learning_rate sets it"},
      {"learning_rate: 1e-4", "args: [--per_gpu_train_batch_size, \"4\"]",
       "job.yaml:19: spec.trainer.args[0]: --per_gpu_train_batch_size: must not be set: "
       "spec.trainer.per_device_train_batch_size sets it"},
      {"learning_rate: 1e-4", "args: [--model_name_or_path, bert-base-cased]",
       "job.yaml:19: spec.trainer.args[0]: --model_name_or_path: must not be set: "
       "spec.trainer.model sets it"},
  });
}

TEST(Decode, AcceptsStepsAsIntegersAndAsFractions) {
  expect_errors({
      {"learning_rate: 1e-4", "save_steps: 50.0", ""},
      {"learning_rate: 1e-4", "save_steps: 0.1", ""},
      {"learning_rate: 1e-4", "save_steps: -1", ""},
      {"learning_rate: 1e-4", "save_steps: 1.5",
       "job.yaml:19: spec.trainer.save_steps: found 1.5, expected an integer, or a fraction below "
       "1 of all steps"},
  });
}

TEST(Decode, ChecksKindAndApiVersionFirst) {
  expect_errors({
      {"kind: TrainJob", "kind: PyTorchJob",
       "job.yaml:2: kind: found the string \"PyTorchJob\", expected TrainJob; tilewright convert "
       "makes a TrainJob of a PyTorchJob"},
      {"kind: TrainJob\n", "", "job.yaml: kind: found nothing, expected TrainJob"},
      {"tilewright.dev/v1alpha1", "tilewright.dev/v1",
       "job.yaml:1: apiVersion: found the string \"tilewright.dev/v1\", expected "
       "tilewright.dev/v1alpha1"},
  });
  EXPECT_EQ(errors_of("- 1\n"),
            "job.yaml: found a list, expected an object\n"
            "job.yaml: apiVersion: found nothing, expected tilewright.dev/v1alpha1\n"
            "job.yaml: kind: found nothing, expected TrainJob");
}

TEST(Decode, ReportsAllErrorsInLineOrder) {
  std::string manifest = with("replicas: 2", "replicas: two");
  manifest = with("minReplicas: 1", "minReplicas: one", manifest);
  EXPECT_EQ(
      errors_of(manifest),
      "job.yaml:9: spec.elasticPolicy.minReplicas: found the string \"one\", expected an integer "
      "from 1 to 1000\n"
      "job.yaml:22: spec.worker.replicas: found the string \"two\", expected an integer from 1 to "
      "1000");
}

TEST(Decode, TreatsEmptyFieldsAsAbsent) {
  EXPECT_EQ(errors_of(with("sharedMemory: 64Mi", "sharedMemory:")), "");
  EXPECT_EQ(errors_of(with("cleanPodPolicy: Running", "cleanPodPolicy: null")), "");
}

TEST(Decode, TruncatesLongStringsAtCharacterBoundaries) {
  std::string name;
  for (int i = 0; i < 60; ++i) name += "\xc3\xa9";
  const std::string sentence = errors_of(with("replicas: 2", "replicas: " + name));
  EXPECT_LT(sentence.size(), 200u);
  EXPECT_NO_THROW((void)nlohmann::json(sentence).dump());
}

TEST(Decode, IgnoresUnknownFieldsUnlessStrict) {
  nlohmann::json object = to_json(decode_manifest(kManifest).job);
  object["metadata"]["managedFields"] = nlohmann::json::array({{{"manager", "kubectl"}}});
  EXPECT_TRUE(decode_object(object, FieldValidation::kStrict).ok());
  object["spec"]["worker"]["novelty"] = 1;
  EXPECT_TRUE(decode_object(object).ok());
  ASSERT_EQ(decode_object(object, FieldValidation::kStrict).errors.size(), 1u);
  EXPECT_EQ(decode_object(object, FieldValidation::kStrict).errors[0].sentence(),
            "spec.worker.novelty: unknown field");
}

// What a tenant may store must not exhaust the operator: each null is an error with its path.
TEST(Decode, BoundsTheSpecOfAnObject) {
  nlohmann::json object = to_json(decode_manifest(kManifest).job);
  nlohmann::json& overlay = object["spec"]["worker"]["podTemplate"];
  overlay["spec"][std::string(600'000, 'k')] = std::vector<nlohmann::json>(90'000);
  const DecodeResult decoded = decode_object(object);
  ASSERT_EQ(decoded.errors.size(), 1u);
  EXPECT_EQ(decoded.errors[0].sentence(),
            "spec: found field names of 600021 bytes in one path, expected at most 1024");
  EXPECT_EQ(decoded.job.metadata.name, "mrpc") << "the operator reports the error on the job";
  overlay["spec"] = nlohmann::json{{"a", std::vector<nlohmann::json>(99'000)}};
  TrainJob job = decode_object(object).job;
  apply_defaults(job);
  EXPECT_EQ(validate(job).errors.size(), 101u);
}

// A job with every field set.
TrainJob full_job() {
  TrainJob job = decode_manifest(kManifest).job;
  ObjectMeta& metadata = job.metadata;
  metadata.generate_name = "m-";
  metadata.namespace_name = "ns";
  metadata.uid = "u-1";
  metadata.resource_version = "17";
  metadata.generation = 3;
  metadata.creation_timestamp = WallTime(std::chrono::seconds(1'700'000'000));
  metadata.deletion_timestamp = WallTime(std::chrono::seconds(1'700'000'100));
  metadata.labels = {{"a.b/c", "d"}};
  metadata.annotations = {{"note", "x y"}};
  metadata.finalizers = {"f"};
  metadata.owner_references = nlohmann::json::array({{{"kind", "Queue"}}});
  RunPolicy& policy = job.spec.run_policy;
  policy.suspend = true;
  policy.ttl_seconds_after_finished = 5;
  policy.active_deadline_seconds = 6;
  policy.backoff_limit = 3;
  policy.scheduling_policy = SchedulingPolicy{2, "queue", "high", 30};
  job.spec.trainer.cache = "data:hub";
  job.spec.trainer.flags["dataset_name"] = "glue";
  job.spec.trainer.flags["use_ipex"] = "true";
  job.spec.trainer.flags["run_name"] = "no";
  job.spec.trainer.flags["bf16"] = "false";
  job.spec.trainer.flags["adam_epsilon"] = "1e-08";
  Worker& worker = job.spec.worker;
  worker.image_pull_policy = ImagePullPolicy::kNever;
  worker.node_selector = {{"disk", "ssd"}};
  worker.tolerations = nlohmann::json::array({{{"key", "k"}, {"operator", "Exists"}}});
  worker.affinity = {{"nodeAffinity", nlohmann::json::object()}};
  worker.topology_spread_constraints = nlohmann::json::array({{{"maxSkew", 1}}});
  worker.env = {{"A", "1", nullptr}, {"B", "", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}}}};
  worker.service_account_name = "sa";
  worker.priority_class_name = "pc";
  worker.scheduler_name = "volcano";
  worker.image_pull_secrets = {"s1", "s2"};
  worker.run_as_user = 1000;
  worker.fs_group = 2000;
  worker.termination_grace_period_seconds = 45;
  worker.pod_template = {{"spec", {{"priority", 1}}}};
  return job;
}

TrainJobStatus full_status() {
  const WallTime time(std::chrono::seconds(1'700'000'000));
  TrainJobStatus status;
  status.phase = Phase::kRestarting;
  status.observed_generation = 3;
  status.start_time = time;
  status.completion_time = time;
  status.training_complete_time = time;
  status.replicas = {2, 2, 1, 0, 1};
  status.selector = "a=b";
  status.restarts = {1, 2, 3};
  status.conditions = {{condition::kRunning, ConditionStatus::kFalse, "Restart", "why", 3, time}};
  FailureRecord failure;
  failure.time = time;
  failure.index = 1;
  failure.rank = 0;
  failure.pod = "mrpc-worker-1";
  failure.pod_uid = "p";
  failure.node = "n";
  failure.init_container = "i";
  failure.cause = FailureCause::kOutOfMemory;
  failure.exit_code = 137;
  failure.signal = 9;
  failure.reason = "OOMKilled";
  failure.step = 12;
  failure.last_lines = {"a", "b"};
  status.failures = {failure};
  status.counted_pods = {"p"};
  status.succeeded_workers = {"mrpc-worker-0"};
  Progress progress;
  progress.step = 12;
  progress.total_steps = 100;
  progress.epoch = 0.25;
  progress.loss = 0.5;
  progress.learning_rate = 1e-4;
  progress.examples_per_second = 33.5;
  progress.tokens_per_second = 1000;
  progress.eta_seconds = 40;
  progress.last_checkpoint = "checkpoint-10";
  progress.metrics = {{"accuracy", 0.75}};
  progress.slow_workers = {{.index = 1, .process = 2, .slowdown = 2.5, .shards = 1}};
  progress.updated = time;
  status.progress = progress;
  status.nominal_workers = 2;
  status.virtual_shards = 8;
  status.rendezvous_epoch = 3;
  status.output_directory = "/disk/output_1";
  return status;
}

TEST(Encode, RoundTripsEveryField) {
  TrainJob job = full_job();
  job.status = full_status();
  job.spec.elastic_policy.rdzv_conf = {{"tls", "true"}};
  const DecodeResult from_json = decode_object(to_json(job), FieldValidation::kStrict);
  ASSERT_TRUE(from_json.ok()) << sentences(from_json.errors);
  EXPECT_EQ(to_json(from_json.job), to_json(job));
  EXPECT_TRUE(from_json.job == job);
  const DecodeResult from_yaml = decode_manifest(to_yaml(to_json(job)));
  ASSERT_TRUE(from_yaml.ok()) << sentences(from_yaml.errors);
  EXPECT_TRUE(from_yaml.job == job);
}

TEST(Encode, WritesTheStatusSummaryForPrinterColumns) {
  TrainJobStatus status = full_status();
  status.replicas = {.desired = 3, .ready = 2};
  status.phase = Phase::kRunning;
  status.progress->eta_seconds = 130;
  status.progress->metrics.clear();
  const nlohmann::json running = {{"progress", "12/100"}, {"quality", "loss 0.5000"},
                                  {"epoch", "0.25"},      {"speed", "33.5"},
                                  {"eta", "2 min 10 s"},  {"ready", "2/3"}};
  EXPECT_EQ(to_json(status)["summary"], running);
  status.phase = Phase::kSucceeded;
  status.progress->metrics = {{"eval_accuracy", 0.80561}, {"eval_f1", 0.9}, {"eval_loss", 0.1}};
  const nlohmann::json ended = {
      {"progress", "12/100"}, {"epoch", "0.25"}, {"quality", "accuracy 0.8056"}, {"ready", "2/3"}};
  EXPECT_EQ(to_json(status)["summary"], ended);
}

TEST(Encode, WritesTheBlockingOrFinalMessage) {
  TrainJobStatus status;
  const auto set = [&](const char* type, ConditionStatus value, const char* message) {
    status.conditions.push_back({type, value, "Reason", message, 1, {}});
  };
  const auto message = [&] {
    return to_json(status).value(nlohmann::json::json_pointer("/summary/message"), "");
  };
  set(condition::kCreated, ConditionStatus::kTrue, "job accepted");
  EXPECT_EQ(message(), "");
  set(condition::kRestarting, ConditionStatus::kTrue, "worker 1 died");
  EXPECT_EQ(message(), "worker 1 died");
  set(condition::kBlocked, ConditionStatus::kTrue, "no node has enough memory");
  EXPECT_EQ(message(), "no node has enough memory");
  status.conditions.back() = {
      condition::kBlocked, ConditionStatus::kFalse, "Failed", "not blocked", 1, {}};
  status.conditions[1].status = ConditionStatus::kFalse;
  set(condition::kFailed, ConditionStatus::kTrue, "it ran longer than allowed");
  EXPECT_EQ(message(), "it ran longer than allowed");
}

TEST(Encode, OmitsUnsetFields) {
  const DecodeResult decoded =
      decode_manifest("apiVersion: tilewright.dev/v1alpha1\nkind: TrainJob\n");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(
      to_json(decoded.job).dump(),
      R"({"apiVersion":"tilewright.dev/v1alpha1","kind":"TrainJob","metadata":{},"spec":{}})");
}

// Another code than the stored one would be written again by each reconcile.
TEST(Decode, KeepsTheLargestExitCodeOfAContainer) {
  TrainJob job = testing::job_of();
  FailureRecord& failure = job.status.failures.emplace_back();
  failure.exit_code = INT32_MAX;
  const DecodeResult decoded = decode_object(to_json(job));
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  EXPECT_EQ(decoded.job.status.failures.front().exit_code, INT32_MAX);
}

// A PyTorchJob of any program may have more processes than Tilewright's trainer can use. Without
// nominalWorkers each reconcile would set it again.
TEST(Decode, KeepsTheProcessesOfTheLargestPyTorchJob) {
  TrainJob job = testing::job_of();
  job.status.nominal_workers = kMaxPods * kMaxProcessesPerNode;
  const DecodeResult decoded = decode_object(to_json(job));
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  EXPECT_EQ(decoded.job.status.nominal_workers, kMaxPods * kMaxProcessesPerNode);
}

TEST(Decode, BoundsTheNumbersOfAStatus) {
  constexpr std::int64_t kHuge = INT64_MAX;
  nlohmann::json object = to_json(testing::job_of());
  object["status"] = {{"nominalWorkers", kHuge},
                      {"virtualShards", 3},
                      {"rendezvousEpoch", -1},
                      {"replicas", {{"desired", kHuge}, {"active", kHuge}, {"succeeded", kHuge}}},
                      {"restarts", {{"program", kHuge}, {"infrastructure", kHuge}}},
                      {"progress", {{"step", kHuge}, {"totalSteps", kHuge}}},
                      {"failures", nlohmann::json::array()}};
  for (int i = 0; i < 40; ++i) {
    object["status"]["failures"].push_back({{"index", i}, {"signal", kHuge}});
  }
  const DecodeResult decoded = decode_object(object);
  ASSERT_TRUE(decoded.ok()) << sentences(decoded.errors);
  const TrainJobStatus& status = decoded.job.status;
  EXPECT_EQ(nominal_workers(decoded.job), 2) << "as in the spec";
  EXPECT_EQ(virtual_shards(decoded.job), kDefaultVirtualShards);
  EXPECT_EQ(status.rendezvous_epoch, 0);
  EXPECT_GT(status.replicas.active + status.replicas.succeeded, 0);
  EXPECT_GT(status.restarts.total(), 0);
  EXPECT_LT(status.progress->total_steps, std::int64_t{1} << 48);
  ASSERT_EQ(status.failures.size(), kFailureHistoryLength);
  EXPECT_EQ(status.failures.back().index, 39) << "the newest stay";
  EXPECT_LT(*status.failures.back().signal, std::int64_t{1} << 31);
}

}  // namespace
}  // namespace tilewright::api
