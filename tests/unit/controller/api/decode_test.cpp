// What a manifest may not look like, with the exact sentence; and that nothing is lost on the way
// in and out.
#include "controller/api/decode.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "controller/api/encode.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::kManifest;
using testing::refusal;
using testing::with;

struct Case {
  const char* place;
  const char* replacement;
  const char* sentence;
};

void expect_sentences(std::initializer_list<Case> cases) {
  for (const Case& bad : cases) {
    EXPECT_EQ(refusal(with(bad.place, bad.replacement)), bad.sentence) << bad.replacement;
  }
}

TEST(Decode, TakesTheGoodManifest) {
  const Decoded decoded = decode_manifest(kManifest);
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

TEST(Decode, TakesTheExample) {
  const auto text = read_file(tilewright::testing::source_dir() / "examples/trainjob.yaml",
                              kMaxManifestBytes, ExitCode::kManifest);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(refusal(*text, Target::kLocal), "");
  EXPECT_EQ(refusal(*text, Target::kCluster), "");
}

TEST(Decode, SuggestsTheNearestKnownField) {
  expect_sentences({
      {"minReplicas:", "minReplica:",
       "job.yaml:9: spec.elasticPolicy.minReplica: is not a known field; did you mean "
       "minReplicas?"},
      {"learning_rate", "lerning_rate",
       "job.yaml:19: spec.trainer.lerning_rate: is not a known field; did you mean learning_rate?"},
      {"learning_rate", "lr",
       "job.yaml:19: spec.trainer.lr: is not a known field; did you mean "
       "spec.trainer.learning_rate?"},
      {"sharedMemory", "sharedMemroy",
       "job.yaml:28: spec.worker.sharedMemroy: is not a known field; did you mean sharedMemory?"},
      {"  runPolicy", "  runpolicy",
       "job.yaml:12: spec.runpolicy: is not a known field; did you mean runPolicy?"},
      {"local: data", "locale: data",
       "job.yaml:34: spec.volumes[1].locale: is not a known field; did you mean local?"},
      {"  name: mrpc", "  nmae: mrpc",
       "job.yaml:4: metadata.nmae: is not a known field; did you mean name?"},
      {"kind: TrainJob", "kind: TrainJob\nxyzzy: 1", "job.yaml:3: xyzzy: is not a known field"},
      {"    sharedMemory: 64Mi", "    volumes: []",
       "job.yaml:28: spec.worker.volumes: is not a known field; did you mean spec.volumes?"},
      {"    cleanPodPolicy", "    restartPolicy: Never\n    cleanPodPolicy",
       "job.yaml:13: spec.runPolicy.restartPolicy: is not a known field; did you mean "
       "spec.worker.restartPolicy?"},
      {"      memory: 2Gi", "      limits: {cpu: 1}",
       "job.yaml:27: spec.worker.resources.limits: is not a known field; did you mean "
       "spec.worker.resources.cpu and .memory?"},
      {"  nprocPerNode: 1", "  pytorchReplicaSpecs: {}",
       "job.yaml:6: spec.pytorchReplicaSpecs: is not a known field; did you mean spec.worker?"},
      {"    replicas: 2", "    replicas: 2\n    num_train_epochs: 3",
       "job.yaml:23: spec.worker.num_train_epochs: is not a known field; did you mean "
       "spec.trainer.num_train_epochs?"},
  });
}

TEST(Decode, NamesWhatItFoundInPlaceOfTheRightType) {
  expect_sentences({
      {"replicas: 2", "replicas: two",
       "job.yaml:22: spec.worker.replicas: found the text \"two\", expected a whole number"},
      {"replicas: 2", "replicas: 1.5",
       "job.yaml:22: spec.worker.replicas: found the number 1.5, expected a whole number"},
      {"replicas: 2", "replicas: [2]",
       "job.yaml:22: spec.worker.replicas: found a list, expected a whole number"},
      {"replicas: 2", "replicas: 99999999999999999999",
       "job.yaml:22: spec.worker.replicas: found the number 1e+20, expected a whole number"},
      {"image: tilewright-worker:0.1.0", "image: 12",
       "job.yaml:23: spec.worker.image: found the number 12, expected a text (put it in quotes)"},
      {"  name: mrpc", "  name: true",
       "job.yaml:4: metadata.name: found the boolean true, expected a text (put it in quotes)"},
      {"cleanPodPolicy: Running", "suspend: maybe",
       "job.yaml:13: spec.runPolicy.suspend: found the text \"maybe\", expected true or false"},
      {"cleanPodPolicy: Running", "cleanPodPolicy: Some",
       "job.yaml:13: spec.runPolicy.cleanPodPolicy: found the text \"Some\", expected one of None, "
       "Running, All"},
      {"restartPolicy: OnFailure", "restartPolicy: onFailure",
       "job.yaml:24: spec.worker.restartPolicy: found the text \"onFailure\", expected one of "
       "Always, "
       "OnFailure, Never, ExitCode"},
      {"memory: 2Gi", "memory: 2GiB",
       "job.yaml:27: spec.worker.resources.memory: found the text \"2GiB\", expected a quantity "
       "such "
       "as 2, 500m or 2Gi"},
      {"memory: 2Gi", "memory: -1",
       "job.yaml:27: spec.worker.resources.memory: found the number -1, expected a quantity such "
       "as "
       "2, 500m or 2Gi"},
      {"  runPolicy:\n    cleanPodPolicy: Running", "  runPolicy: Running",
       "job.yaml:12: spec.runPolicy: found the text \"Running\", expected an object"},
      {"    sharedMemory: 64Mi", "    env: {A: b}",
       "job.yaml:28: spec.worker.env: found an object, expected a list"},
      {"    sharedMemory: 64Mi", "    env: [A]",
       "job.yaml:28: spec.worker.env[0]: found the text \"A\", expected an object"},
      {"    sharedMemory: 64Mi", "    env: [{name: A, value: 1}]",
       "job.yaml:28: spec.worker.env[0].value: found the number 1, expected a text (put it in "
       "quotes)"},
      {"    sharedMemory: 64Mi", "    nodeSelector: {disk: true}",
       "job.yaml:28: spec.worker.nodeSelector.disk: found the boolean true, expected a text (put "
       "it "
       "in quotes)"},
      {"    sharedMemory: 64Mi", "    tolerations: {}",
       "job.yaml:28: spec.worker.tolerations: found an object, expected a list"},
      {"    learning_rate: 1e-4", "    args: [--seed, 1]",
       "job.yaml:19: spec.trainer.args[1]: found the number 1, expected a text (put it in quotes)"},
      {"  volumes:\n    - name: models\n      local: ../models\n",
       "  volumes:\n    -\n    - name: models\n      local: ../models\n",
       "job.yaml:29: spec.volumes[0]: found nothing, expected an object"},
  });
}

TEST(Decode, HoldsTrainingFlagsToTheTable) {
  expect_sentences({
      {"learning_rate: 1e-4", "learning_rate: fast",
       "job.yaml:19: spec.trainer.learning_rate: found the text \"fast\", expected a number from 0 "
       "to "
       "100"},
      {"learning_rate: 1e-4", "learning_rate: -1",
       "job.yaml:19: spec.trainer.learning_rate: found -1, expected a number from 0 to 100"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: 0",
       "job.yaml:20: spec.trainer.per_device_train_batch_size: found 0, expected a whole number "
       "from 1 "
       "to 65536"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: \"16\"",
       "job.yaml:20: spec.trainer.per_device_train_batch_size: found the text \"16\", expected a "
       "whole "
       "number from 1 to 65536"},
      {"learning_rate: 1e-4", "lr_scheduler_type: cosine",
       "job.yaml:19: spec.trainer.lr_scheduler_type: found cosine, expected one of linear, "
       "constant"},
      {"learning_rate: 1e-4", "save_strategy: no",
       "job.yaml:19: spec.trainer.save_strategy: found the boolean false, expected one of no, "
       "steps, "
       "epoch (YAML takes a bare yes, no, on or off for a boolean: put it in quotes)"},
      {"learning_rate: 1e-4", "bf16: 1",
       "job.yaml:19: spec.trainer.bf16: found the number 1, expected true or false"},
      {"learning_rate: 1e-4", "run_name: 7",
       "job.yaml:19: spec.trainer.run_name: found the number 7, expected a text of up to 4096 "
       "bytes"},
      {"learning_rate: 1e-4", "nominal_workers: 2",
       "job.yaml:19: spec.trainer.nominal_workers: found the number 2, expected nothing: it "
       "follows "
       "from spec.worker.replicas, spec.elasticPolicy.maxReplicas and spec.nprocPerNode"},
      {"learning_rate: 1e-4", "task_name: sst2",
       "job.yaml:19: spec.trainer.task_name: found sst2, expected mrpc, which this field's other "
       "name "
       "says, or only one of the two"},
  });
  EXPECT_EQ(refusal(with("task: mrpc", "task_name: mrpc")), "");
  EXPECT_EQ(refusal(with("learning_rate: 1e-4", "save_strategy: \"no\"")), "");
}

TEST(Decode, WantsThisKindAndVersionBeforeAnythingElse) {
  expect_sentences({
      {"kind: TrainJob", "kind: PyTorchJob",
       "job.yaml:2: kind: found the text \"PyTorchJob\", expected TrainJob"},
      {"kind: TrainJob\n", "", "job.yaml: kind: found nothing, expected TrainJob"},
      {"tilewright.dev/v1alpha1", "tilewright.dev/v1",
       "job.yaml:1: apiVersion: found the text \"tilewright.dev/v1\", expected "
       "tilewright.dev/v1alpha1"},
  });
  EXPECT_EQ(refusal("- 1\n"),
            "job.yaml: found a list, expected an object\n"
            "job.yaml: apiVersion: found nothing, expected tilewright.dev/v1alpha1\n"
            "job.yaml: kind: found nothing, expected TrainJob");
}

TEST(Decode, TellsAllErrorsAtOnceInTheOrderOfLines) {
  std::string manifest = with("replicas: 2", "replicas: two");
  manifest = with("minReplicas: 1", "minReplicas: one", manifest);
  EXPECT_EQ(refusal(manifest),
            "job.yaml:9: spec.elasticPolicy.minReplicas: found the text \"one\", expected a whole "
            "number\n"
            "job.yaml:22: spec.worker.replicas: found the text \"two\", expected a whole number");
}

TEST(Decode, TakesEmptyFieldsForAbsentOnes) {
  EXPECT_EQ(refusal(with("sharedMemory: 64Mi", "sharedMemory:")), "");
  EXPECT_EQ(refusal(with("cleanPodPolicy: Running", "cleanPodPolicy: null")), "");
}

TEST(Decode, CutsLongTextsInItsSentencesBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 60; ++i) name += "\xc3\xa9";
  const std::string sentence = refusal(with("replicas: 2", "replicas: " + name));
  EXPECT_LT(sentence.size(), 200u);
  EXPECT_NO_THROW((void)nlohmann::json(sentence).dump());
}

TEST(Decode, IgnoresWhatANewerApiServerAdds) {
  nlohmann::json object = to_json(decode_manifest(kManifest).job);
  object["metadata"]["managedFields"] = nlohmann::json::array({{{"manager", "kubectl"}}});
  EXPECT_TRUE(decode_object(object, true).ok());
  object["spec"]["worker"]["novelty"] = 1;
  EXPECT_TRUE(decode_object(object).ok());
  ASSERT_EQ(decode_object(object, true).errors.size(), 1u);
  EXPECT_EQ(decode_object(object, true).errors[0].sentence(),
            "spec.worker.novelty: is not a known field");
}

TEST(Decode, ReadsTimesAsKubernetesWritesThem) {
  EXPECT_EQ(parse_timestamp("1970-01-02T00:00:01Z"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-02T00:00:01.250Z"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-02T01:30:01+01:30"), WallTime(std::chrono::seconds(86401)));
  EXPECT_EQ(parse_timestamp("1970-01-01T23:00:01-01:00"), WallTime(std::chrono::seconds(86401)));
  for (const char* text : {"", "1970-01-02", "1970-13-02T00:00:01Z", "1970-02-30T00:00:01Z",
                           "1970-01-02T24:00:01Z", "1970-01-02T00:00:01", "1970-01-02 00:00:01Z",
                           "1970-01-02T00:00:01+1", "1970-01-02T00:00:01.Z", "yesterday"}) {
    EXPECT_FALSE(parse_timestamp(text).has_value()) << text;
  }
}

// A job with every field set, to be carried out and in again.
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
  job.spec.trainer.args = {"--extra", "$(HOME)"};
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
  failure.cause = FailureCause::kOutOfMemory;
  failure.exit_code = 137;
  failure.signal = 9;
  failure.reason = "OOMKilled";
  failure.step = 12;
  failure.last_lines = {"a", "b"};
  status.failures = {failure};
  status.counted_pods = {"p"};
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
  progress.updated = time;
  status.progress = progress;
  status.nominal_workers = 2;
  status.virtual_shards = 8;
  status.rendezvous_epoch = 3;
  return status;
}

TEST(Encode, LosesNothing) {
  TrainJob job = full_job();
  job.status = full_status();
  job.spec.elastic_policy.rdzv_conf = {{"tls", "true"}};
  const Decoded from_json = decode_object(to_json(job), true);
  ASSERT_TRUE(from_json.ok()) << sentences(from_json.errors);
  EXPECT_EQ(to_json(from_json.job), to_json(job));
  EXPECT_TRUE(from_json.job == job);
  const Decoded from_yaml = decode_manifest(to_yaml(to_json(job)));
  ASSERT_TRUE(from_yaml.ok()) << sentences(from_yaml.errors);
  EXPECT_TRUE(from_yaml.job == job);
}

TEST(Encode, SumsTheStatusUpForColumns) {
  TrainJobStatus status = full_status();
  status.replicas = {.desired = 3, .ready = 2};
  status.phase = Phase::kRunning;
  status.progress->eta_seconds = 130;
  status.progress->metrics.clear();
  const nlohmann::json running = {{"progress", "12/100"},
                                  {"quality", "loss 0.5000"},
                                  {"speed", "33.5/s"},
                                  {"eta", "2 min 10 s"},
                                  {"ready", "2/3"}};
  EXPECT_EQ(to_json(status)["summary"], running);
  status.phase = Phase::kSucceeded;
  status.progress->metrics = {{"eval_accuracy", 0.80561}, {"eval_f1", 0.9}, {"eval_loss", 0.1}};
  const nlohmann::json ended = {
      {"progress", "12/100"}, {"quality", "accuracy 0.8056"}, {"ready", "2/3"}};
  EXPECT_EQ(to_json(status)["summary"], ended);
}

TEST(Encode, SumsUpWhyAJobDoesNotRunOrHowItEnded) {
  TrainJobStatus status;
  const auto set = [&](const char* type, ConditionStatus value, const char* message) {
    status.conditions.push_back({type, value, "Reason", message, 1, {}});
  };
  const auto message = [&] {
    return to_json(status).value(nlohmann::json::json_pointer("/summary/message"), "");
  };
  set(condition::kCreated, ConditionStatus::kTrue, "the job was taken up");
  EXPECT_EQ(message(), "");
  set(condition::kRestarting, ConditionStatus::kTrue, "worker 1 died");
  EXPECT_EQ(message(), "worker 1 died");
  set(condition::kBlocked, ConditionStatus::kTrue, "no node can take it");
  EXPECT_EQ(message(), "no node can take it");
  status.conditions.back() = {
      condition::kBlocked, ConditionStatus::kFalse, "Failed", "nothing is in the way", 1, {}};
  status.conditions[1].status = ConditionStatus::kFalse;
  set(condition::kFailed, ConditionStatus::kTrue, "it ran longer than allowed");
  EXPECT_EQ(message(), "it ran longer than allowed");
}

TEST(Encode, LeavesOutWhatWasLeftOut) {
  const Decoded decoded = decode_manifest("apiVersion: tilewright.dev/v1alpha1\nkind: TrainJob\n");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(
      to_json(decoded.job).dump(),
      R"({"apiVersion":"tilewright.dev/v1alpha1","kind":"TrainJob","metadata":{},"spec":{}})");
}

}  // namespace
}  // namespace tilewright::api
