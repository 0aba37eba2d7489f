// Tests validate(): the exact error for each kind of invalid manifest.
#include "controller/api/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/tasks.h"
#include "controller/api/defaults.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::errors_of;
using testing::expect_errors;
using testing::job_of;
using testing::kManifest;
using testing::with;

std::string all_tasks() { return fmt::format("{}", fmt::join(task_names(), ", ")); }

TEST(Validate, RefusesAnEnvironmentThatNoProcessCanHave) {
  std::string doubling = "    env:\n      - {name: V0, value: \"0123456789\"}\n";
  for (int i = 1; i < 40; ++i) {
    doubling += fmt::format("      - {{name: V{}, value: \"$(V{})$(V{})\"}}\n", i, i - 1, i - 1);
  }
  EXPECT_EQ(errors_of(with("    restartPolicy: OnFailure\n", doubling)),
            "job.yaml:24: spec.worker.env: found more than 130048 bytes in V14 with its $(...) "
            "expanded, expected an environment that a process can have");
  std::string many = "    env:\n      - {name: A, value: " + std::string(100000, 'x') + "}\n";
  for (int i = 0; i < 40; ++i) many += fmt::format("      - {{name: B{}, value: \"$(A)\"}}\n", i);
  EXPECT_THAT(errors_of(with("    restartPolicy: OnFailure\n", many)),
              ::testing::HasSubstr("found more than 1048576 bytes up to B9 with"));
  const std::string long_argument =
      with("    restartPolicy: OnFailure\n",
           "    env:\n      - {name: A, value: " + std::string(100000, 'x') + "}\n",
           with("    learning_rate: 1e-4\n", "    run_name: $(A)$(A)\n"));
  EXPECT_THAT(errors_of(long_argument),
              ::testing::HasSubstr("spec.trainer.run_name: found more than 130048 bytes"));
}

TEST(Validate, EscapesControlCharactersOfTheManifest) {
  const std::string errors = errors_of(with("name: mrpc\n", "name: \"a\\nb\\e[31m\"\n"));
  EXPECT_THAT(errors, ::testing::HasSubstr("a\\nb\\x1b[31m"));
  EXPECT_EQ(errors.find('\n'), std::string::npos) << errors;
}

TEST(Validate, AcceptsAValidManifest) {
  EXPECT_EQ(errors_of(kManifest), "");
  EXPECT_EQ(errors_of(kManifest, Target::kLocal), "");
  EXPECT_EQ(errors_of(kManifest, Target::kCluster), "");
}

TEST(Validate, WarnsOfFieldsThatNoPodHas) {
  const auto checked = check_manifest(
      with("    sharedMemory: 64Mi\n",
           "    podTemplate:\n"
           "      spec:\n"
           "        toleration: []\n"
           "        priorityClassName: high\n"
           "        containers: [{name: worker, livenessProb: {}}]\n"
           "        volumes: [{name: data, persistentVolumeClaim: {readOnly: true}}]\n"),
      "job.yaml", Target::kCluster);
  ASSERT_TRUE(checked.ok()) << checked.error().message;
  EXPECT_EQ(sentences(checked->warnings, "job.yaml"),
            "job.yaml:30: spec.worker.podTemplate.spec.toleration: unknown field; did you mean "
            "tolerations?\n"
            "job.yaml:32: spec.worker.podTemplate.spec.containers[0].livenessProb: unknown field; "
            "did you mean livenessProbe?");
  EXPECT_EQ(errors_of(with("    sharedMemory: 64Mi\n",
                           "    podTemplate: {spec: {containers: [{name: a, image: b, resources: "
                           "{limits: {cpu: 1Core}}, imagePullPolicy: Sometime}]}}\n")),
            "job.yaml:28: spec.worker.podTemplate.spec.containers[0].imagePullPolicy: found the "
            "string \"Sometime\", expected one of Always, IfNotPresent, Never\n"
            "job.yaml:28: spec.worker.podTemplate.spec.containers[0].resources.limits.cpu: found "
            "the string \"1Core\", expected a quantity such as 2, 500m or 2Gi");
}

TEST(Validate, FindsTheTrainJobAmongOtherObjects) {
  const std::string claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: d}\n";
  const auto checked = check_manifest(claim + "---\n" + kManifest, "job.yaml", Target::kLocal);
  ASSERT_TRUE(checked.ok()) << checked.error().message;
  EXPECT_EQ(checked->job.metadata.name, "mrpc");
  EXPECT_EQ(checked->positions.line_of("metadata.name"), 8);
  EXPECT_EQ(sentences(checked->warnings, "job.yaml"),
            "job.yaml:2: ignored: the kind is PersistentVolumeClaim");
  EXPECT_EQ(errors_of(claim + "---\n" + claim), "job.yaml: found no TrainJob, expected one");
  EXPECT_EQ(errors_of("kind: List\nitems: []\n"), "job.yaml: found no TrainJob, expected one");
  EXPECT_EQ(errors_of(claim + "---\n" + kManifest + "---\n" + kManifest),
            "job.yaml:45: found a second TrainJob, expected one");
}

TEST(Validate, NamesAMisspeltKindAmongOtherObjects) {
  const std::string claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: d}\n";
  const std::string expected =
      ", expected TrainJob (tilewright.dev/v1alpha1) or PyTorchJob (kubeflow.org/v1); did you "
      "mean ";
  const std::string misspelt = with("TrainJob", "Trainjob");
  EXPECT_EQ(errors_of(claim + "---\n" + misspelt),
            "job.yaml:6: kind: found \"Trainjob\"" + expected + "TrainJob?");
  EXPECT_EQ(errors_of(misspelt + "---\n" + kManifest),
            "job.yaml:2: kind: found \"Trainjob\"" + expected + "TrainJob?");
  EXPECT_EQ(errors_of(kManifest + "---\nkind: PytorchJob\n---\nkind: TrainJbo\n"),
            "job.yaml:40: kind: found \"PytorchJob\"" + expected +
                "PyTorchJob?\njob.yaml:42: kind: found \"TrainJbo\"" + expected + "TrainJob?");
}

TEST(Validate, ChecksNamesAgainstPodNameRules) {
  expect_errors({
      {"  name: mrpc", "  labels: {}",
       "job.yaml:3: metadata.name: found nothing, expected a name or a generateName"},
      {"  name: mrpc", "  name: MRPC",
       "job.yaml:4: metadata.name: found MRPC, expected lower-case letters, digits and '-', "
       "starting with a letter and not ending with '-'"},
      {"  name: mrpc", "  name: 2mrpc",
       "job.yaml:4: metadata.name: found 2mrpc, expected lower-case letters, digits and '-', "
       "starting with a letter and not ending with '-'"},
      {"  name: mrpc", "  generateName: .mrpc-",
       "job.yaml:4: metadata.generateName: found .mrpc-, expected lower-case letters, digits and "
       "'-', "
       "starting with a letter and not ending with '-'"},
      {"  name: mrpc", "  name: mrpc\n  namespace: my.space",
       "job.yaml:5: metadata.namespace: found my.space, expected up to 63 lower-case letters, "
       "digits and '-'"},
      {"  name: mrpc", "  name: mrpc\n  labels: {team: a b}",
       "job.yaml:5: metadata.labels.team: found a b, expected up to 63 letters, digits, '-', '_' "
       "and '.'"},
  });
  // 63 - strlen("-worker-3") = 54.
  EXPECT_EQ(errors_of(with("  name: mrpc", "  name: " + std::string(54, 'm'))), "");
  EXPECT_EQ(errors_of(with("  name: mrpc", "  name: " + std::string(55, 'm'))),
            "job.yaml:4: metadata.name: found 55 characters, expected at most 54: the pod name "
            "NAME-worker-3 has at most 63");
  EXPECT_EQ(errors_of(with("  name: mrpc", "  generateName: " + std::string(50, 'm'))),
            "job.yaml:4: metadata.generateName: found 50 characters, expected at most 49: the pod "
            "name NAME-worker-3 has at most 63");
}

TEST(Validate, ChecksAnotherNameByTheSameRule) {
  const TrainJob job = job_of();
  EXPECT_TRUE(check_job_name("mrpc-2", job).ok());
  for (const char* name : {"", "../project", "a/b", "..", "MRPC", "2mrpc", "mrpc-"}) {
    const Status checked = check_job_name(name, job);
    ASSERT_FALSE(checked.ok()) << name;
    EXPECT_EQ(checked.error().code, ExitCode::kUsage);
    EXPECT_EQ(checked.error().message,
              fmt::format("found {}, expected lower-case letters, digits and '-', starting with a "
                          "letter and not ending with '-'",
                          *name == '\0' ? "nothing" : name));
  }
  EXPECT_EQ(check_job_name(std::string(55, 'm'), job).error().message,
            "found 55 characters, expected at most 54: the pod name NAME-worker-3 has at most 63");
}

TEST(Validate, ChecksReplicaBounds) {
  expect_errors({
      {"minReplicas: 1", "minReplicas: 5",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 5, expected at most 4, the value of "
       "spec.elasticPolicy.maxReplicas"},
      {"minReplicas: 1", "minReplicas: 3",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 3, expected at most 2, the value of "
       "spec.worker.replicas"},
      {"maxReplicas: 4", "maxReplicas: 1",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1, expected at least 2, the value of "
       "spec.worker.replicas"},
      {"replicas: 2", "replicas: 0",
       "job.yaml:22: spec.worker.replicas: found 0, expected an integer from 1 to 1000"},
      {"minReplicas: 1", "minReplicas: 0",
       "job.yaml:9: spec.elasticPolicy.minReplicas: found 0, expected an integer from 1 to "
       "1000"},
      {"maxReplicas: 4", "maxReplicas: 1001",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1001, expected an integer from 1 to "
       "1000"},
      {"nprocPerNode: 1", "nprocPerNode: gpu",
       "job.yaml:6: spec.nprocPerNode: found the string \"gpu\", expected auto, cpu or an integer "
       "without quotes"},
      {"nprocPerNode: 1", "nprocPerNode: 0",
       "job.yaml:6: spec.nprocPerNode: found 0, expected an integer from 1 to 256"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tsl, value: \"true\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[0]: found the key \"tsl\", expected tls, "
       "keep_alive_interval or keep_alive_max_attempt; did you mean tls?"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: keep_alive_interval, value: \"0.5\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf: found 1.5 s for keep_alive_interval x "
       "keep_alive_max_attempt, expected at least 3 s, because workers send a heartbeat every "
       "second"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"yes\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[0]: found \"yes\" for tls, expected true or false"},
      {"rdzvBackend: c10d", "rdzvConf: [{key: tls, value: \"true\"}, {key: tls, value: \"false\"}]",
       "job.yaml:8: spec.elasticPolicy.rdzvConf[1]: found the key tls twice, expected it once"},
      {"rdzvBackend: c10d", "rdzvBackend: etcd",
       "job.yaml:8: spec.elasticPolicy.rdzvBackend: found etcd, expected c10d"},
      {"maxRestarts: 3", "maxRestarts: -1",
       "job.yaml:11: spec.elasticPolicy.maxRestarts: found -1, expected an integer from 0 to "
       "1000000"},
  });
}

TEST(Validate, RejectsMoreShardsThanTheGlobalBatchAllows) {
  expect_errors({
      {"learning_rate: 1e-4", "virtual_shards: 64",
       "job.yaml:19: spec.trainer.virtual_shards: found 64, expected no more than the global batch "
       "of 32 examples (per_device_train_batch_size 16 x 2 processes x gradient_accumulation_steps "
       "1)"},
      {"learning_rate: 1e-4", "virtual_shards: 12",
       "job.yaml:19: spec.trainer.virtual_shards: found 12, expected a power of two"},
      {"learning_rate: 1e-4", "virtual_shards: 2",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 4 x nprocPerNode 1 = 4 processes, "
       "expected at most 2, the number of spec.trainer.virtual_shards"},
      {"per_device_train_batch_size: 16", "per_device_train_batch_size: 1",
       "job.yaml:10: spec.elasticPolicy.maxReplicas: found 4 x nprocPerNode 1 = 4 processes, "
       "expected at most 2, the largest power of two within the global batch of 2 examples "
       "(per_device_train_batch_size 1 x 2 processes x gradient_accumulation_steps 1)"},
  });
}

TEST(Validate, BoundsTheNumberOfProcesses) {
  EXPECT_EQ(
      errors_of(
          with("maxReplicas: 4", "maxReplicas: 5", with("nprocPerNode: 1", "nprocPerNode: 256"))),
      "job.yaml:10: spec.elasticPolicy.maxReplicas: found 1280 processes, expected at most 1024 "
      "(1024 virtual shards)");
}

TEST(Validate, ComputesTheGlobalBatchFromProcessesAndAccumulation) {
  const std::string manifest = with("nprocPerNode: 1", "nprocPerNode: 2");
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4", "virtual_shards: 64", manifest)), "");
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4",
                           "gradient_accumulation_steps: 2\n    virtual_shards: 64")),
            "");
}

TEST(Validate, RejectsAliasesThatDiffer) {
  expect_errors({
      {"cleanPodPolicy: Running", "backoffLimit: 5",
       "job.yaml:13: spec.runPolicy.backoffLimit: found 5, expected 3, the value of "
       "spec.elasticPolicy.maxRestarts, or only one of the two fields"},
      {"cleanPodPolicy: Running", "backoffLimit: 3", ""},
  });
  EXPECT_EQ(*job_of(with("    maxRestarts: 3\n  runPolicy:\n    cleanPodPolicy: Running",
                         "  runPolicy:\n    backoffLimit: 5"))
                 .spec.elastic_policy.max_restarts,
            5);
}

TEST(Validate, ChecksRunPolicyRanges) {
  expect_errors({
      {"cleanPodPolicy: Running", "activeDeadlineSeconds: 0",
       "job.yaml:13: spec.runPolicy.activeDeadlineSeconds: found 0, expected an integer from 1 "
       "to 316224000"},
      {"cleanPodPolicy: Running", "ttlSecondsAfterFinished: -1",
       "job.yaml:13: spec.runPolicy.ttlSecondsAfterFinished: found -1, expected an integer "
       "from 0 to 316224000"},
      {"cleanPodPolicy: Running", "schedulingPolicy: {minAvailable: 5}",
       "job.yaml:13: spec.runPolicy.schedulingPolicy.minAvailable: found 5, expected an integer "
       "from 1 to 4"},
  });
}

TEST(Validate, RejectsUnknownTasks) {
  expect_errors({
      {"task: mrpc", "task: sst-2",
       "job.yaml:15: spec.trainer.task: found sst-2, expected one of " + all_tasks() +
           "; did you mean sst2?"},
      {"task: mrpc", "task: swag",
       "job.yaml:15: spec.trainer.task: found swag, expected one of " + all_tasks()},
      {"    task: mrpc\n", "",
       "job.yaml:14: spec.trainer.task: found nothing, expected one of " + all_tasks()},
  });
}

TEST(Validate, ChecksPathsAgainstVolumes) {
  expect_errors({
      {"    output: output:$(TILEWRIGHT_JOB_NAME)\n", "",
       "job.yaml:14: spec.trainer.output: found nothing, expected VOLUME:relative/path"},
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
       "job.yaml:18: spec.trainer.output: found output:., expected a directory on the volume, not "
       "the volume itself"},
      {"{claimName: tilewright-output}", "{claimName: tilewright-output, readOnly: true}",
       "job.yaml:18: spec.trainer.output: found the volume output, which is read-only, expected a "
       "writable volume"},
      {"learning_rate: 1e-4", "resume_from_checkpoint: elsewhere:x",
       "job.yaml:19: spec.trainer.resume_from_checkpoint: found the volume elsewhere, expected one "
       "of spec.volumes (models, data, output)"},
      {"data: data:MRPC", "data: \"data:\"", ""},
      {"data: data:MRPC", "data: data:$$(MRPC)", ""},
  });
}

TEST(Validate, ChecksPathsAfterExpansion) {
  const std::string manifest =
      with("output:$(TILEWRIGHT_JOB_NAME)", "output:$(SUB)/$(TILEWRIGHT_JOB_NAME)");
  const auto env = [&](const char* value) {
    return with("sharedMemory: 64Mi",
                "env:\n      - {name: UP, value: ..}\n      - {name: SUB, value: \"" +
                    std::string(value) + "\"}",
                manifest);
  };
  EXPECT_EQ(errors_of(env("runs")), "");
  EXPECT_EQ(
      errors_of(env("$(UP)/x")),
      "job.yaml:18: spec.trainer.output: found output:../x/mrpc, expected a path that stays in "
      "its volume, without '..'");
  EXPECT_EQ(errors_of(with("data: data:MRPC", "data: $(TILEWRIGHT_JOB_NAME):x")),
            "job.yaml:17: spec.trainer.data: found $(TILEWRIGHT_JOB_NAME):x, expected the name of "
            "a volume without variables");
}

TEST(Validate, ChecksActionsAndFilesOfYourOwn) {
  expect_errors({
      {"learning_rate: 1e-4", "do_train: false\n    do_eval: false",
       "job.yaml:19: spec.trainer.do_train: found do_train=false and do_eval=false, expected at "
       "least one of them, or do_predict, true"},
      {"learning_rate: 1e-4", "do_train: false\n    do_eval: false\n    do_predict: true", ""},
      {"    data: data:MRPC\n", "    train_file: data:train.csv\n",
       "job.yaml:15: spec.trainer.task: must not be set with files of your own: the GLUE "
       "task mrpc has its own files"},
  });
  const std::string own = with("    task: mrpc\n", "", with("    data: data:MRPC\n", ""));
  const std::string both = "train_file: data:train.csv\n    validation_file: data:dev.json";
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4", both, own)), "");
  EXPECT_EQ(describe_task(job_of(with("learning_rate: 1e-4", both, own))), "own files");
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4", "do_predict: true\n    test_file: /data/test.tsv",
                           own)),
            "job.yaml:18: spec.trainer.test_file: found /data/test.tsv, expected "
            "VOLUME:relative/path");
  const auto own_errors = [&](const char* flags) {
    return errors_of(with("learning_rate: 1e-4", flags, own));
  };
  EXPECT_EQ(own_errors("train_file: data:train.csv"),
            "job.yaml:14: spec.trainer.validation_file: found nothing, expected the file with the "
            "examples to evaluate on, or do_train without do_eval");
  EXPECT_EQ(own_errors("train_file: data:train.csv\n    do_train: true"), "");
  EXPECT_EQ(own_errors("train_file: data:train.txt\n    do_train: true"),
            "job.yaml:17: spec.trainer.train_file: found data:train.txt, expected a file that ends "
            "in .csv, .tsv, .json or .jsonl");
  EXPECT_EQ(own_errors("train_file: data:train.txt\n    do_train: true\n    doc_stride: 64"), "")
      << "question answering";
  EXPECT_EQ(own_errors("train_file: data:$(TILEWRIGHT_JOB_NAME)\n    do_train: true"), "");
}

// The worker refuses these too, before it reads the model and the data.
TEST(Validate, ChecksFlagsAgainstEachOther) {
  expect_errors({
      {"learning_rate: 1e-4", "load_best_model_at_end: true",
       "job.yaml:19: spec.trainer.load_best_model_at_end: found load_best_model_at_end with "
       "eval_strategy=no, expected steps or epoch: the best model is found by evaluations during "
       "the training"},
      {"learning_rate: 1e-4", "save_strategy: best",
       "job.yaml:19: spec.trainer.save_strategy: found save_strategy=best with eval_strategy=no, "
       "expected steps or epoch: the best model is found by evaluations during the training"},
      {"learning_rate: 1e-4", "args: [--save_strategy=best]",
       "job.yaml:19: spec.trainer.save_strategy: found save_strategy=best with eval_strategy=no, "
       "expected steps or epoch: the best model is found by evaluations during the training"},
      {"learning_rate: 1e-4", "save_strategy: best\n    eval_strategy: epoch", ""},
      {"learning_rate: 1e-4", "load_best_model_at_end: true\n    do_predict: true", ""},
      {"learning_rate: 1e-4",
       "load_best_model_at_end: true\n    eval_strategy: epoch\n    save_strategy: \"no\"",
       "job.yaml:19: spec.trainer.load_best_model_at_end: found load_best_model_at_end with "
       "save_strategy=no, expected steps, epoch or best: the best model is loaded from a "
       "checkpoint"},
      {"learning_rate: 1e-4", "gemm_backend: onednn\n    exact: true",
       "job.yaml:20: spec.trainer.exact: found gemm_backend=onednn with exact=true, expected "
       "exact=false: oneDNN does not guarantee the same bits for different numbers of rows and "
       "threads"},
      {"learning_rate: 1e-4", "eval_strategy: epoch\n    metric_for_best_model: bleu",
       "job.yaml:20: spec.trainer.metric_for_best_model: found bleu, expected one of loss, "
       "accuracy, f1, combined_score"},
      {"learning_rate: 1e-4", "eval_strategy: epoch\n    metric_for_best_model: eval_f1", ""},
  });
}

std::vector<std::string> warnings_of(const std::string& manifest, Target target) {
  const Result<ValidatedJob> checked = check_manifest(manifest, "job.yaml", target);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
  std::vector<std::string> sentences;
  if (!checked.ok()) return sentences;
  for (const FieldError& warning : checked->warnings) {
    sentences.push_back(warning.sentence("job.yaml"));
  }
  return sentences;
}

TEST(Validate, WarnsOfAMountOfNoVolume) {
  const auto warnings = [](const std::string& spec) {
    return warnings_of(with("sharedMemory: 64Mi", "podTemplate: {spec: " + spec + "}"),
                       Target::kCluster);
  };
  const std::string pod = "job.yaml:28: spec.worker.podTemplate.spec.";
  const std::string worker = "{containers: [{name: worker, volumeMounts: [{name: ";
  EXPECT_THAT(warnings(worker + "models, mountPath: /m, subPath: a}]}]}"), ::testing::IsEmpty())
      << "of spec.volumes";
  EXPECT_THAT(warnings(worker + "tilewright-shm, mountPath: /m}]}]}"), ::testing::IsEmpty());
  EXPECT_THAT(
      warnings(worker + "extra, mountPath: /m}]}], volumes: [{name: extra, emptyDir: {}}]}"),
      ::testing::IsEmpty());
  EXPECT_THAT(warnings(worker + "model, mountPath: /m}]}]}"),
              ::testing::ElementsAre(pod + "containers[0].volumeMounts[0].name: found model, "
                                           "expected the name of a volume; did you mean models?"));
  EXPECT_THAT(warnings("{initContainers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: "
                       "1Gi}}, volumeMounts: [{name: unknown, mountPath: /m}]}]}"),
              ::testing::ElementsAre(pod + "initContainers[0].volumeMounts[0].name: found unknown, "
                                           "expected the name of a volume"));
}

TEST(Validate, AcceptsNamesOfTheHub) {
  const std::string named = with("models:minilm", "google-bert/bert-base-uncased");
  EXPECT_EQ(errors_of(named), "");
  EXPECT_EQ(errors_of(with("    data: data:MRPC\n", "", named)), "");
  const std::string squad =
      with("    task: mrpc\n", "    dataset_name: squad\n", with("    data: data:MRPC\n", ""));
  EXPECT_EQ(errors_of(squad), "");
  EXPECT_EQ(task_name(job_of(squad)), "squad");
  const std::string glue = with("dataset_name: squad", "dataset_name: nyu-mll/glue", squad);
  EXPECT_EQ(task_name(job_of(with("learning_rate: 1e-4", "dataset_config_name: RTE", glue))),
            "rte");
  EXPECT_EQ(errors_of(glue),
            "job.yaml:14: spec.trainer.dataset_config_name: found nothing, expected the task of "
            "the data set glue: one of " +
                fmt::format("{}", fmt::join(glue_task_names(), ", ")));
  EXPECT_EQ(errors_of(with("dataset_name: squad", "dataset_name: data:squad", squad)), "");
  EXPECT_EQ(errors_of(with("learning_rate: 1e-4", "tokenizer_name: bert-base-cased", named)), "");
  for (const char* name : {"/models/bert", "./bert", "a/b/c", "-bert", "bert..base", "b ert"}) {
    EXPECT_EQ(errors_of(with("models:minilm", fmt::format("\"{}\"", name))),
              fmt::format("job.yaml:16: spec.trainer.model: found {}, expected "
                          "VOLUME:relative/path or a name on the hub such as "
                          "google-bert/bert-base-uncased",
                          name));
  }
  expect_errors({
      {"    model: models:minilm\n", "",
       "job.yaml:14: spec.trainer.model: found nothing, expected VOLUME:relative/path or a name on "
       "the hub such as google-bert/bert-base-uncased"},
      {"learning_rate: 1e-4", "dataset_name: squad",
       "job.yaml:17: spec.trainer.data: found data:MRPC and dataset_name, expected only one of "
       "them\n"
       "job.yaml:19: spec.trainer.dataset_name: found squad, expected a data set of the task "
       "mrpc"},
      {"    data: data:MRPC\n", "    dataset_name: imdb\n", ""},
      {"learning_rate: 1e-4", "cache: hub",
       "job.yaml:19: spec.trainer.cache: found hub, expected VOLUME:relative/path"},
      {"learning_rate: 1e-4", "cache: elsewhere:hub",
       "job.yaml:19: spec.trainer.cache: found the volume elsewhere, expected one of spec.volumes "
       "(models, data, output)"},
      {"learning_rate: 1e-4", "cache: data:hub\n    cache_dir: data:other",
       "job.yaml:20: spec.trainer.cache_dir: found data:other, expected data:hub, the value of "
       "cache, or only one of the two fields"},
  });
  EXPECT_EQ(errors_of(with("    task: mrpc\n", "    dataset_name: imdb\n",
                           with("    data: data:MRPC\n", ""))),
            "job.yaml:15: spec.trainer.dataset_name: found imdb, expected glue, or one of " +
                all_tasks() + "; for other data use train_file");
}

TEST(Validate, WarnsThatEachPodDownloads) {
  const std::string named =
      with("models:minilm", "bert-base-uncased", with("    data: data:MRPC\n", ""));
  EXPECT_THAT(warnings_of(named, Target::kCluster),
              ::testing::ElementsAre(
                  "job.yaml:14: spec.trainer.cache: found nothing: each worker pod downloads model "
                  "bert-base-uncased, data set of mrpc to its own /tmp/huggingface at each start; "
                  "VOLUME:relative/path keeps the files for all workers"));
  EXPECT_THAT(warnings_of(named, Target::kLocal), ::testing::IsEmpty());
  EXPECT_THAT(warnings_of(kManifest, Target::kCluster), ::testing::IsEmpty());
  EXPECT_THAT(warnings_of(with("learning_rate: 1e-4", "cache: data:hub", named), Target::kCluster),
              ::testing::IsEmpty());
  EXPECT_THAT(warnings_of(with("sharedMemory: 64Mi",
                               "env: [{name: HF_HOME, value: /mnt/tilewright/data/hub}]", named),
                          Target::kCluster),
              ::testing::IsEmpty());
}

TEST(Validate, WarnsOfFlagsWithoutEffectAndOfPathsWrittenAsNames) {
  EXPECT_THAT(warnings_of(with("learning_rate: 1e-4", "use_ipex: true"), Target::kAnywhere),
              ::testing::ElementsAre("job.yaml:19: spec.trainer.use_ipex: has no effect: the "
                                     "kernels are chosen by the CPU's instruction set"));
  EXPECT_THAT(warnings_of(with("learning_rate: 1e-4", "args: [--no_cuda]"), Target::kAnywhere),
              ::testing::ElementsAre("job.yaml:19: spec.trainer.no_cuda: has no effect: Tilewright "
                                     "computes on CPUs only"));
  EXPECT_THAT(
      warnings_of(with("models:minilm", "models/minilm"), Target::kAnywhere),
      ::testing::ElementsAre("job.yaml:16: spec.trainer.model: found models/minilm, the name of a "
                             "model or data set on the hub; the path on the volume is "
                             "models:minilm"));
}

TEST(Validate, ChecksResourcesForConsistency) {
  expect_errors({
      {"sharedMemory: 64Mi", "sharedMemory: 2Gi",
       "job.yaml:28: spec.worker.sharedMemory: found 2Gi, expected less than 2Gi, the value of "
       "spec.worker.resources.memory: pages of /dev/shm count against it"},
      {"memory: 2Gi", "memory: 2",
       "job.yaml:27: spec.worker.resources.memory: found 2 (2 bytes), expected at least 128Mi"},
      {"memory: 2Gi", "memory: 500m",
       "job.yaml:27: spec.worker.resources.memory: found 500m (1 bytes), expected at least 128Mi"},
      {"cpu: 1", "cpu: 0",
       "job.yaml:26: spec.worker.resources.cpu: found 0, expected a quantity above zero"},
      {"memory: 2Gi", "memroy: 2Gi",
       "job.yaml:27: spec.worker.resources.memroy: unknown resource; did you mean memory?"},
      {"memory: 2Gi", "memory: 2Gi\n      example.org/device: 1", ""},
  });
}

TEST(Validate, WarnsAboutGpus) {
  EXPECT_THAT(
      warnings_of(with("memory: 2Gi", "memory: 2Gi\n      nvidia.com/gpu: 1"), Target::kAnywhere),
      ::testing::ElementsAre("job.yaml:28: spec.worker.resources[\"nvidia.com/gpu\"]: found 1: "
                             "Tilewright computes on CPUs only, so the workers reserve it and do "
                             "not use it"));
  EXPECT_THAT(warnings_of(with("memory: 2Gi", "memory: 2Gi\n      example.org/device: 1"),
                          Target::kAnywhere),
              ::testing::IsEmpty());
}

TEST(Validate, WarnsAboutCpusThatCannotBePinned) {
  const auto checked = check_manifest(with("cpu: 1", "cpu: 1500m"), "job.yaml", Target::kAnywhere);
  ASSERT_TRUE(checked.ok());
  ASSERT_EQ(checked->warnings.size(), 1u);
  EXPECT_EQ(
      checked->warnings[0].sentence("job.yaml"),
      "job.yaml:26: spec.worker.resources.cpu: found 1500m, expected an integer: the kubelet's "
      "static CPU manager cannot pin a worker with a fraction of a CPU");
}

TEST(Validate, WarnsAboutSidecarsThatPreventTheGuaranteedQosClass) {
  const auto warnings_of = [](const std::string& container) {
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
    return "job.yaml:28: spec.worker.podTemplate.spec.containers[0].resources: found limit " +
           limit + " and request " + request + " for " + resource +
           ", expected equal amounts: with this container the pods are not Guaranteed, so their "
           "CPUs are not pinned and a node that runs out of memory evicts them earlier";
  };
  EXPECT_EQ(warnings_of("env: []"), sentence("nothing", "nothing", "cpu"));
  EXPECT_EQ(warnings_of("resources: {limits: {cpu: 100m}}"),
            sentence("nothing", "nothing", "memory"));
  EXPECT_EQ(warnings_of("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m}}"),
            sentence("1", "100m", "cpu"));
  EXPECT_EQ(warnings_of("resources: {requests: {cpu: 1, memory: 1Gi}}"),
            sentence("nothing", "1", "cpu"));
  EXPECT_EQ(warnings_of("resources: {limits: {cpu: 1, memory: 1Gi}}"), "");
  EXPECT_EQ(warnings_of("resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: "
                        "1024Mi}}"),
            "");
}

// IsDNS1123Subdomain of Kubernetes bounds the whole name, not its parts.
TEST(Validate, LimitsDnsSubdomainsToTheirWholeLength) {
  for (const char* field : {"serviceAccountName: {}", "priorityClassName: {}",
                            "imagePullSecrets: [{{name: {}}}]", "nodeSelector: {{{}/zone: a}}"}) {
    const auto errors_with = [&](std::size_t length) {
      return errors_of(
          with("sharedMemory: 64Mi", fmt::format(fmt::runtime(field), std::string(length, 'a'))));
    };
    EXPECT_EQ(errors_with(64), "") << field;
    EXPECT_EQ(errors_with(253), "") << field;
    EXPECT_NE(errors_with(254), "") << field;
  }
  EXPECT_EQ(errors_of(with("claimName: tilewright-data", "claimName: " + std::string(253, 'a'))),
            "");
}

TEST(Validate, ChecksWorkerFieldsAgainstKubernetesRules) {
  expect_errors({
      {"sharedMemory: 64Mi", "env: [{name: RANK, value: \"0\"}]",
       "job.yaml:28: spec.worker.env[0].name: found RANK, expected a name that the operator does "
       "not set itself"},
      {"sharedMemory: 64Mi", "env: [{name: A}, {name: A}]",
       "job.yaml:28: spec.worker.env[1].name: found A twice, expected each name once"},
      {"sharedMemory: 64Mi", "env: [{name: a=b}]",
       "job.yaml:28: spec.worker.env[0].name: found a=b, expected the name of an environment "
       "variable"},
      {"sharedMemory: 64Mi", "env: [{name: A, value: b, valueFrom: {}}]",
       "job.yaml:28: spec.worker.env[0]: found value and valueFrom, expected one of them"},
      {"sharedMemory: 64Mi", "runAsUser: 0",
       "job.yaml:28: spec.worker.runAsUser: found 0, expected an integer from 1 to 2147483647"},
      {"sharedMemory: 64Mi", "nodeSelector: {a b: c}",
       "job.yaml:28: spec.worker.nodeSelector[\"a b\"]: found c, expected a node's label and its "
       "value"},
      {"sharedMemory: 64Mi", "serviceAccountName: My_Account",
       "job.yaml:28: spec.worker.serviceAccountName: found My_Account, expected lower-case "
       "letters, "
       "digits, '-' and '.'"},
      {"image: tilewright-worker:0.1.0", "image: my image",
       "job.yaml:23: spec.worker.image: found my image, expected an image name without whitespace"},
      {"sharedMemory: 64Mi", "terminationGracePeriodSeconds: -1",
       "job.yaml:28: spec.worker.terminationGracePeriodSeconds: found -1, expected an integer "
       "from 0 to 86400"},
  });
}

TEST(Validate, RejectsDuplicateVolumeNamesAndSources) {
  expect_errors({
      {"- name: data", "- name: output",
       "job.yaml:17: spec.trainer.data: found the volume data, expected one of spec.volumes "
       "(models, "
       "output, output)\n"
       "job.yaml:36: spec.volumes[2].name: found output twice, expected each name once"},
      {"- name: data", "- name: data\n      emptyDir: {}",
       "job.yaml:33: spec.volumes[1]: found emptyDir and persistentVolumeClaim, expected one "
       "volume source"},
      {"persistentVolumeClaim: {claimName: tilewright-data}",
       "persistentVolumeClame: {claimName: tilewright-data}",
       "job.yaml:35: spec.volumes[1].persistentVolumeClame: unknown field; did you mean "
       "persistentVolumeClaim?"},
      {"{claimName: tilewright-data}", "{claimNam: tilewright-data}",
       "job.yaml:35: spec.volumes[1].persistentVolumeClaim.claimName: found nothing, expected the "
       "name of a claim\n"
       "job.yaml:35: spec.volumes[1].persistentVolumeClaim.claimNam: unknown field; did you "
       "mean claimName?"},
      {"      local: data\n      persistentVolumeClaim: {claimName: tilewright-data}\n", "",
       "job.yaml:33: spec.volumes[1]: found no source for data, expected a volume source such as "
       "persistentVolumeClaim, a local directory, or both"},
      {"- name: output", "- name: tilewright-output",
       "job.yaml:18: spec.trainer.output: found the volume output, expected one of spec.volumes "
       "(models, data, tilewright-output)\n"
       "job.yaml:36: spec.volumes[2].name: found tilewright-output, expected a name that does not "
       "start with tilewright-, which is reserved for the operator's volumes"},
  });
}

TEST(ValidateForLocal, RequiresALocalDirectoryForEveryVolume) {
  const std::string manifest = with("      local: data\n", "");
  EXPECT_EQ(errors_of(manifest), "");
  EXPECT_EQ(errors_of(manifest, Target::kCluster), "");
  EXPECT_EQ(errors_of(manifest, Target::kLocal),
            "job.yaml:33: spec.volumes[1].local: found nothing, expected the local "
            "directory of the volume data");
}

TEST(ValidateForLocal, RequiresPlainEnvValues) {
  const std::string manifest =
      with("sharedMemory: 64Mi", "env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: x}}}]");
  EXPECT_EQ(errors_of(manifest, Target::kCluster), "");
  EXPECT_EQ(errors_of(manifest, Target::kLocal),
            "job.yaml:28: spec.worker.env[0].valueFrom: found valueFrom for NODE, expected value: "
            "valueFrom needs a cluster");
}

TEST(ValidateForCluster, RequiresASourceForEveryVolume) {
  const std::string manifest =
      with("      persistentVolumeClaim: {claimName: tilewright-data}\n", "");
  EXPECT_EQ(errors_of(manifest, Target::kLocal), "");
  EXPECT_EQ(errors_of(manifest, Target::kCluster),
            "job.yaml:33: spec.volumes[1]: found no volume source for data, expected one such as "
            "persistentVolumeClaim");
}

TEST(ValidateForCluster, RejectsWhatRestrictedPodSecurityForbids) {
  const auto overlay = [](const std::string& text) {
    return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text), Target::kCluster);
  };
  EXPECT_EQ(errors_of(with("persistentVolumeClaim: {claimName: tilewright-data}",
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

TEST(Validate, RejectsOverlayFieldsThatTheOperatorSets) {
  const auto overlay = [](const std::string& text) {
    return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text));
  };
  EXPECT_EQ(overlay("{spec: {restartPolicy: Always}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.restartPolicy: must not be set: use "
            "spec.worker.restartPolicy");
  EXPECT_EQ(overlay("{metadata: {name: x}}"),
            "job.yaml:28: spec.worker.podTemplate.metadata.name: must not be set: "
            "the operator sets it");
  EXPECT_EQ(overlay("{spec: {containers: [{name: worker, image: x}]}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.containers[0].image: must not be set: use "
            "spec.worker.image");
  EXPECT_EQ(
      overlay("{spec: {containers: [{name: worker, env: [{name: A}, {name: RANK}]}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].env[1].name: found RANK, expected a "
      "name that the operator does not set itself");
  EXPECT_EQ(overlay("{spec: {containers: [{name: side, env: [{name: RANK}]}]}}"), "");
  EXPECT_EQ(
      overlay("{spec: {containers: [{image: x}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].name: found nothing, expected the "
      "name of a container (the operator's is worker)");
  EXPECT_EQ(overlay("{specs: {}}"),
            "job.yaml:28: spec.worker.podTemplate.specs: unknown field, expected metadata "
            "or spec");
  for (const char* field : {"terminationMessagePolicy: File", "terminationMessagePath: /tmp/x"}) {
    const std::string name = std::string(field).substr(0, std::string_view(field).find(':'));
    const auto containers = [&](const char* container) {
      return fmt::format("{{spec: {{containers: [{{name: {}, {}}}]}}}}", container, field);
    };
    EXPECT_EQ(overlay(containers("worker")),
              "job.yaml:28: spec.worker.podTemplate.spec.containers[0]." + name +
                  ": must not be set: the operator reads the last lines of its "
                  "log");
    EXPECT_EQ(overlay(containers("side")), "");
  }
  EXPECT_EQ(
      overlay("{spec: {volumes: [{name: mine, emptyDir: {}}, {name: tilewright-shm}]}}"),
      "job.yaml:28: spec.worker.podTemplate.spec.volumes[1].name: found tilewright-shm, expected a "
      "name that does not start with tilewright-, which is reserved for the operator's volumes");
  EXPECT_EQ(overlay("{spec: {initContainers: [{name: worker, image: i}]}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.initContainers[0].name: found worker, "
            "expected another name: it is the name of the operator's container");
}

// The merge of the overlay, the checks of the overlay and the operator rely on these types.
TEST(Validate, RejectsWrongTypesInTheOverlay) {
  const auto overlay = [](const std::string& text) {
    return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text));
  };
  struct WrongType {
    const char* text;
    const char* field;
    const char* message;
  };
  const WrongType cases[] = {
      {"{metadata: x}", "metadata", "found the string \"x\", expected an object"},
      {"{metadata: {labels: x}}", "metadata.labels", "found the string \"x\", expected an object"},
      {"{metadata: {labels: [a]}}", "metadata.labels", "found a list, expected an object"},
      {"{metadata: {labels: {a: 5}}}", "metadata.labels.a",
       "found the number 5, expected a string (put it in quotes)"},
      {"{metadata: {annotations: {a: {}}}}", "metadata.annotations.a",
       "found an object, expected a string"},
      {"{spec: [a]}", "spec", "found a list, expected an object"},
      {"{spec: {containers: x}}", "spec.containers", "found the string \"x\", expected a list"},
      {"{spec: {containers: [x]}}", "spec.containers[0]",
       "found the string \"x\", expected an object"},
      {"{spec: {containers: [{name: 7}]}}", "spec.containers[0].name",
       "found the number 7, expected a string (put it in quotes)"},
      {"{spec: {containers: [{name: worker, env: {A: b}}]}}", "spec.containers[0].env",
       "found an object, expected a list"},
      {"{spec: {containers: [{name: worker, env: [{name: A, value: 1}]}]}}",
       "spec.containers[0].env[0].value",
       "found the number 1, expected a string (put it in quotes)"},
      {"{spec: {containers: [{name: side, args: a}]}}", "spec.containers[0].args",
       "found the string \"a\", expected a list of strings"},
      {"{spec: {containers: [{name: side, resources: {limits: {cpu: true}}}]}}",
       "spec.containers[0].resources.limits.cpu",
       "found the boolean true, expected a quantity such as 2, 500m or 2Gi"},
      {"{spec: {containers: [{name: side, securityContext: x}]}}",
       "spec.containers[0].securityContext", "found the string \"x\", expected an object"},
      {"{spec: {containers: [{name: side, securityContext: {privileged: \"true\"}}]}}",
       "spec.containers[0].securityContext.privileged",
       "found the string \"true\", expected true or false"},
      {"{spec: {containers: [{name: side, securityContext: {capabilities: {drop: ALL}}}]}}",
       "spec.containers[0].securityContext.capabilities.drop",
       "found the string \"ALL\", expected a list of strings"},
      {"{spec: {containers: [{name: side, ports: [{containerPort: http}]}]}}",
       "spec.containers[0].ports[0].containerPort",
       "found the string \"http\", expected an integer"},
      {"{spec: {initContainers: [{name: side, volumeMounts: [{mountPath: 1}]}]}}",
       "spec.initContainers[0].volumeMounts[0].mountPath",
       "found the number 1, expected a string (put it in quotes)"},
      {"{spec: {volumes: [{name: v, persistentVolumeClaim: c}]}}",
       "spec.volumes[0].persistentVolumeClaim", "found the string \"c\", expected an object"},
      {"{spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: 1}}]}}",
       "spec.volumes[0].persistentVolumeClaim.claimName",
       "found the number 1, expected a string (put it in quotes)"},
      {"{spec: {securityContext: {runAsUser: root}}}", "spec.securityContext.runAsUser",
       "found the string \"root\", expected an integer"},
      {"{spec: {securityContext: {supplementalGroups: [a]}}}",
       "spec.securityContext.supplementalGroups",
       "found the string \"a\", expected a list of integers"},
      {"{spec: {hostNetwork: \"false\"}}", "spec.hostNetwork",
       "found the string \"false\", expected true or false"},
      {"{spec: {tolerations: {key: a}}}", "spec.tolerations", "found an object, expected a list"},
  };
  for (const WrongType& wrong : cases) {
    EXPECT_EQ(overlay(wrong.text), fmt::format("job.yaml:28: spec.worker.podTemplate.{}: {}",
                                               wrong.field, wrong.message))
        << wrong.text;
  }
}

// Fields of every type, also some that Tilewright does not know.
TEST(Validate, AcceptsAnOverlayWithCorrectTypes) {
  EXPECT_EQ(errors_of(with("sharedMemory: 64Mi", R"(podTemplate:
      metadata: {labels: {team: a}, annotations: {a: "1"}}
      spec:
        priority: 1
        dnsConfig: {options: [{name: ndots, value: "1"}], searches: [a.b]}
        hostAliases: [{ip: 192.0.2.1, hostnames: [a]}]
        securityContext: {supplementalGroups: [1, 2], fsGroup: 3}
        futureField: [1, {a: [b]}]
        containers:
        - name: side
          image: s
          command: [run]
          env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
          resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: "1", memory: 1Gi}}
          ports: [{containerPort: 80}]
          livenessProbe: {httpGet: {port: http}}
        volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}])")),
            "");
}

TEST(Validate, RejectsOverlayMountsAtPathsOfTheOperator) {
  const auto mounted = [](const std::string& container, const std::string& path) {
    return errors_of(with(
        "sharedMemory: 64Mi",
        "podTemplate: {spec: {containers: [{name: " + container +
            ", volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: " + path + "}]}]}}"));
  };
  const std::string field =
      "job.yaml:28: spec.worker.podTemplate.spec.containers[0].volumeMounts[1].mountPath: found ";
  for (const std::string path :
       {"/dev/shm", "/dev/shm/", "//dev//shm", "/dev/./shm", "/mnt/../dev/shm", "dev/shm"}) {
    EXPECT_EQ(mounted("worker", path),
              field + path + ", expected another path: use spec.worker.sharedMemory");
  }
  for (const std::string path : {"/var/run/tilewright", "/var/run/tilewright/job-key"}) {
    EXPECT_EQ(mounted("worker", path),
              field + path + ", expected another path: the operator mounts the job's key there");
  }
  EXPECT_EQ(mounted("worker", "/dev/shmem"), "");
  EXPECT_EQ(mounted("worker", "/var/run"), "");
  EXPECT_EQ(mounted("side", "/dev/shm"), "");
}

// Each of these overlays would remove something from the pod: its securityContext, its worker
// container, its volumes.
TEST(Validate, RejectsRemovalsByTheOverlay) {
  const auto overlay = [](const std::string& text) {
    return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text), Target::kCluster);
  };
  const std::string why = ": podTemplate can only add fields to the pod";
  const std::string place = "job.yaml:28: spec.worker.podTemplate.";
  const std::string directive =
      ": found a directive of a strategic merge patch, expected a plain field";
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

TEST(Defaults, AreIdempotent) {
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

TEST(Defaults, DeriveElasticBoundsFromReplicas) {
  const TrainJob job = job_of(with("    minReplicas: 1\n    maxReplicas: 4\n", ""));
  EXPECT_EQ(job.spec.elastic_policy.min_replicas, 2);
  EXPECT_EQ(job.spec.elastic_policy.max_replicas, 2);
}

}  // namespace
}  // namespace tilewright::api
