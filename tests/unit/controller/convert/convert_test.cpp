// The TrainJobs that `tilewright convert` writes. The expected texts are written by hand.
#include "controller/convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/version.h"
#include "controller/api/decode.h"
#include "controller/api/validate.h"
#include "tests/support/paths.h"

namespace tilewright::convert {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Conversion converted(const std::string& yaml) {
  const api::DecodedPyTorchJob decoded = api::decode_pytorchjob_document(read_yaml(yaml));
  EXPECT_TRUE(decoded.ok()) << sentences(decoded.errors);
  return convert(decoded.job, decoded.positions);
}

// The text of the TrainJob, which is valid in a cluster.
std::string manifest_of(const std::string& yaml) {
  const Conversion conversion = converted(yaml);
  EXPECT_TRUE(conversion.ok()) << sentences(conversion.errors, "job.yaml");
  if (!conversion.ok()) return "";
  std::string text = to_manifest(conversion, "job.yaml");
  const auto checked = api::check_manifest(text, "made.yaml", api::Target::kCluster);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message) << "\n" << text;
  return text;
}

std::string errors_of(const std::string& yaml) {
  return sentences(converted(yaml).errors, "job.yaml");
}

std::string guide(const char* name) {
  const auto text = read_file(tilewright::testing::source_dir() / "tests/golden/guides" / name,
                              1 << 20, ExitCode::kManifest);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : "";
}

constexpr const char* kHead =
    "# Written by `tilewright convert job.yaml`: a TrainJob that runs the training of the "
    "PyTorchJob with\n"
    "# Tilewright's trainer. Comments explain the lines that have no counterpart.\n";

TEST(Convert, BertLargeOfTheGuides) {
  EXPECT_EQ(manifest_of(guide("pytorchjob-bert-large.yaml")),
            std::string(kHead) +
                R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata:
  name: transformers-pytorchjob
  namespace: kubeflow
spec:
  nprocPerNode: auto
  elasticPolicy:
    rdzvBackend: c10d
    minReplicas: 1
    maxReplicas: 4
    maxRestarts: 10
  trainer:
    model: google-bert/bert-large-uncased
    dataset_name: squad
    output: pvc-volume:output
    do_train: true
    do_eval: true
    max_seq_length: 384
    per_device_train_batch_size: 12
    doc_stride: 128
    learning_rate: 3e-05
    num_train_epochs: 2
    bf16: true
    # --ddp_backend: the workers choose shared memory or TCP themselves
    # --no_cuda: Tilewright computes on CPUs only
    # --use_ipex: the kernels are chosen by the CPU's instruction set
  worker:
    replicas: 4
    image: tilewright-worker:0.1.0
    imagePullPolicy: IfNotPresent
    # restartPolicy Never of the pod: ignored, as by Kubeflow; that of the replicas applies
    restartPolicy: OnFailure
    resources:
      cpu: 200
      memory: 128Gi
    env:
      # TRANSFORMERS_CACHE /tmp/pvc-mount/transformers_cache: the volume is at
      # /mnt/tilewright/pvc-volume
      - name: TRANSFORMERS_CACHE
        value: /mnt/tilewright/pvc-volume/transformers_cache
      # HF_DATASETS_CACHE /tmp/pvc-mount/hf_datasets_cache: the volume is at
      # /mnt/tilewright/pvc-volume
      - name: HF_DATASETS_CACHE
        value: /mnt/tilewright/pvc-volume/hf_datasets_cache
      - name: LOGLEVEL
        value: INFO
      - name: OMP_NUM_THREADS
        value: "56"
      # CCL_WORKER_COUNT 1: the worker exchanges gradients itself, on its own threads; under mpiexec
      # it uses the CPUs to which mpiexec has bound it
      # LD_PRELOAD /usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9:/usr/local/lib/libiomp5.so: the
      # worker allocates its memory at the start and uses no OpenMP, so another allocator or runtime
      # has no effect
    nodeSelector:
      node-type: spr
    # /dev/shm without sizeLimit: each worker has its own /dev/shm; sharedMemory sets its size
  # mountPath /tmp/pvc-mount: the volume pvc-volume is at /mnt/tilewright/pvc-volume
  volumes:
    - name: pvc-volume
      persistentVolumeClaim:
        claimName: transformers-pvc
)");
}

TEST(Convert, DistilbertOfTheGuides) {
  EXPECT_EQ(manifest_of(guide("pytorchjob-distilbert.yaml")),
            std::string(kHead) +
                R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata:
  name: transformers-pytorchjob
spec:
  nprocPerNode: auto
  elasticPolicy:
    rdzvBackend: c10d
    minReplicas: 1
    maxReplicas: 4
    maxRestarts: 10
  # pip install -r /workspace/transformers/examples/pytorch/question-answering/requirements.txt:
  # skipped, the worker image needs no packages
  trainer:
    model: distilbert/distilbert-base-uncased
    dataset_name: squad
    # --output_dir /tmp/pvc-mount/output_$(date +%Y%m%d_%H%M%S): the start time is not known yet and
    # is replaced by the name of the job; use metadata.generateName to get another directory in each
    # run
    output: pvc-volume:output_$(TILEWRIGHT_JOB_NAME)
    do_train: true
    do_eval: true
    max_seq_length: 384
    per_device_train_batch_size: 12
    doc_stride: 128
    learning_rate: 3e-05
    num_train_epochs: 2
    bf16: true
  worker:
    replicas: 4
    image: tilewright-worker:0.1.0
    imagePullPolicy: IfNotPresent
    # restartPolicy Never of the pod: ignored, as by Kubeflow; that of the replicas applies
    restartPolicy: OnFailure
    resources:
      cpu: 240
      memory: 128Gi
    env:
      # HF_HUB_CACHE /tmp/pvc-mount/hub_cache: the volume is at /mnt/tilewright/pvc-volume
      - name: HF_HUB_CACHE
        value: /mnt/tilewright/pvc-volume/hub_cache
      # HF_DATASETS_CACHE /tmp/pvc-mount/hf_datasets_cache: the volume is at
      # /mnt/tilewright/pvc-volume
      - name: HF_DATASETS_CACHE
        value: /mnt/tilewright/pvc-volume/hf_datasets_cache
      - name: LOGLEVEL
        value: INFO
      - name: OMP_NUM_THREADS
        value: "240"
      # LD_PRELOAD /usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9:/usr/local/lib/libiomp5.so: the
      # worker allocates its memory at the start and uses no OpenMP, so another allocator or runtime
      # has no effect
    nodeSelector:
      node-type: gnr
    # /dev/shm without sizeLimit: each worker has its own /dev/shm; sharedMemory sets its size
  # mountPath /tmp/pvc-mount: the volume pvc-volume is at /mnt/tilewright/pvc-volume
  volumes:
    - name: pvc-volume
      persistentVolumeClaim:
        claimName: transformers-pvc
)");
}

// A small PyTorchJob whose parts a test replaces.
struct Parts {
  std::string spec = {};  // fields of spec, each line with two spaces
  std::string command =
      "[python, run_glue.py, --model_name_or_path, bert-base-cased, --task_name, "
      "mrpc, --output_dir, /data/out]";
  std::string container = {};  // fields of the container, ten spaces
  std::string mounts = "[{name: disk, mountPath: /data}]";
  std::string volumes = "[{name: disk, persistentVolumeClaim: {claimName: disk}}]";
  std::string pod = {};  // fields of the pod, ten spaces
  std::string metadata = "{name: qa}";
  std::string image = "tilewright-worker:0.1.0";
  std::string worker = {};             // fields of the replica, six spaces
  std::string template_metadata = {};  // eight spaces
  std::string more_replicas = {};      // four spaces
};

std::string job(const Parts& parts) {
  return "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: " + parts.metadata +
         "\nspec:\n" + parts.spec + "  pytorchReplicaSpecs:\n" + parts.more_replicas +
         "    Worker:\n" + parts.worker + "      template:\n" + parts.template_metadata +
         "        spec:\n" + parts.pod + "          volumes: " + parts.volumes +
         "\n          containers:\n          - name: pytorch\n            image: " + parts.image +
         "\n            command: " + parts.command + "\n            volumeMounts: " + parts.mounts +
         "\n            resources: {limits: {cpu: 2, memory: 4Gi}}\n" + parts.container;
}

std::string flags(const std::string& more) {
  return "[python, run_glue.py, --model_name_or_path, bert-base-cased, --task_name, mrpc, "
         "--output_dir, /data/out, " +
         more + "]";
}

TEST(Convert, AMinimalJob) {
  EXPECT_EQ(manifest_of(job({})), std::string(kHead) + R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata:
  name: qa
spec:
  nprocPerNode: 1
  trainer:
    model: bert-base-cased
    task: mrpc
    output: disk:out
  worker:
    replicas: 1
    image: tilewright-worker:0.1.0
    resources:
      cpu: 2
      memory: 4Gi
  # mountPath /data: the volume disk is at /mnt/tilewright/disk
  volumes:
    - name: disk
      persistentVolumeClaim:
        claimName: disk
)");
}

TEST(Convert, TheNumberOfProcesses) {
  const std::string torchrun =
      "[torchrun, run_glue.py, --model_name_or_path, m, --task_name, mrpc, --output_dir, /data/o]";
  const std::string with_flag =
      "[torchrun, --nproc-per-node=4, run_glue.py, --model_name_or_path, m, --task_name, mrpc, "
      "--output_dir, /data/o]";
  EXPECT_THAT(manifest_of(job({.spec = "  nprocPerNode: \"2\"\n", .command = torchrun})),
              HasSubstr("spec:\n  nprocPerNode: 2\n"));
  EXPECT_THAT(manifest_of(job({.spec = "  nprocPerNode: \"2\"\n", .command = with_flag})),
              HasSubstr("spec:\n  nprocPerNode: 4\n"));
  EXPECT_THAT(
      manifest_of(job({.spec = "  elasticPolicy: {nProcPerNode: 3}\n", .command = torchrun})),
      HasSubstr("spec:\n  nprocPerNode: 3\n"));
  EXPECT_THAT(manifest_of(job({.spec = "  nprocPerNode: cpu\n", .command = torchrun})),
              HasSubstr("spec:\n  nprocPerNode: cpu\n"));
  EXPECT_EQ(
      errors_of(job({.spec = "  nprocPerNode: gpu\n", .command = torchrun})),
      "job.yaml:5: spec.nprocPerNode: found gpu, expected auto, cpu or an integer from 1 to 256: "
      "Tilewright computes on CPUs only");
  // Without torchrun each pod runs one process, whatever nprocPerNode says.
  EXPECT_THAT(manifest_of(job({.spec = "  nprocPerNode: \"2\"\n"})),
              HasSubstr("spec:\n  nprocPerNode: 1\n"));
}

TEST(Convert, TheElasticPolicy) {
  const std::string text = manifest_of(
      job({.spec = "  elasticPolicy: {rdzvBackend: etcd, minReplicas: 1, maxReplicas: 3, rdzvPort: "
                   "29400, rdzvHost: h, rdzvId: i, rdzvConf: [{key: timeout, value: \"9\"}, {key: "
                   "keep_alive_interval, value: \"4\"}], "
                   "standalone: true, metrics: [{type: Resource}]}\n",
           .worker = "      replicas: 2\n"}));
  EXPECT_THAT(text, HasSubstr(R"(  elasticPolicy:
    minReplicas: 1
    maxReplicas: 3
    # rdzvConf timeout: the rendezvous runs in the operator
    rdzvConf:
      - key: keep_alive_interval
        value: "4"
    # metrics: no HorizontalPodAutoscaler is created; create one whose scaleTargetRef is the
    # trainjobs.tilewright.dev
    # rdzvBackend etcd: the rendezvous runs in the operator
    # rdzvHost h: the rendezvous runs in the operator
    # rdzvId i: the rendezvous runs in the operator
    # rdzvPort 29400: the rendezvous runs in the operator
    # standalone true: the rendezvous runs in the operator
  trainer:
)"));
  EXPECT_THAT(manifest_of(job({.spec = "  elasticPolicy: {rdzvConf: [{key: keep_alive_interval, "
                                       "value: \"0.5\"}]}\n",
                               .worker = "      replicas: 2\n"})),
              HasSubstr("# rdzvConf keep_alive_interval: found 1.5 s for keep_alive_interval x "));
  const std::string refused = manifest_of(
      job({.spec = "  elasticPolicy: {rdzvConf: [{key: keep_alive_interval, value: \"60\"}, {key: "
                   "keep_alive_max_attempt, value: \"0\"}]}\n",
           .worker = "      replicas: 2\n"}));
  EXPECT_THAT(refused, Not(HasSubstr("rdzvConf:\n")));
  EXPECT_THAT(refused, HasSubstr("# rdzvConf keep_alive_max_attempt: found \"0\" for "));
  // Kubeflow's defaults.
  EXPECT_THAT(manifest_of(job({.spec = "  elasticPolicy: {maxRestarts: 5}\n",
                               .worker = "      replicas: 2\n"})),
              HasSubstr("  elasticPolicy:\n    minReplicas: 2\n    maxReplicas: 2\n    "
                        "maxRestarts: 5\n"));
}

TEST(Convert, TheFlagsOfTorchrun) {
  const std::string text = manifest_of(
      job({.command = "[python3, -m, torch.distributed.run, --nnodes, '1:2', --nproc_per_node, "
                      "'1', --rdzv-backend, c10d, --rdzv_endpoint, 'h:1', --max-restarts, '7', "
                      "--log-dir, /logs, run_qa.py, --model_name_or_path, m, --dataset_name, "
                      "squad, --output_dir, /data/o]"}));
  EXPECT_THAT(text, HasSubstr(R"(  # --nnodes 1:2: minReplicas and maxReplicas set it
  # --rdzv_backend c10d: the operator starts the processes, not torchrun
  # --rdzv_endpoint h:1: the operator starts the processes, not torchrun
  # --log_dir /logs: each process writes to the log of its pod
  elasticPolicy:
    maxRestarts: 7
)"));
  EXPECT_THAT(text, HasSubstr("    dataset_name: squad\n"));
}

TEST(Convert, TheRunPolicy) {
  EXPECT_THAT(manifest_of(job({.spec = R"(  elasticPolicy: {maxRestarts: 5}
  runPolicy:
    cleanPodPolicy: All
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    backoffLimit: 3
    suspend: true
    managedBy: tilewright.dev/operator
    schedulingPolicy: {minAvailable: 1, queue: batch, minResources: {cpu: 4}, priorityClass: high, scheduleTimeoutSeconds: 9}
)"})),
              HasSubstr(R"(  runPolicy:
    suspend: true
    ttlSecondsAfterFinished: 60
    activeDeadlineSeconds: 3600
    cleanPodPolicy: All
    schedulingPolicy:
      minAvailable: 1
      queue: batch
      priorityClass: high
      scheduleTimeoutSeconds: 9
      # minResources: the PodGroup of a TrainJob has minAvailable only
    # backoffLimit 3: elasticPolicy.maxRestarts limits the restarts
    # managedBy tilewright.dev/operator: Tilewright's operator manages every TrainJob
  trainer:
)"));
  EXPECT_THAT(manifest_of(job({.spec = "  runPolicy: {backoffLimit: 3}\n"})),
              HasSubstr("  runPolicy:\n    backoffLimit: 3\n"));
}

TEST(Convert, AMasterIsOneMoreWorker) {
  Parts parts = {.worker = "      replicas: 3\n"};
  const std::string alone = job(parts);
  const std::size_t at = alone.find("      template:");
  std::string master = "    Master:\n" + alone.substr(at);
  parts.more_replicas = master;
  EXPECT_THAT(manifest_of(job(parts)),
              HasSubstr("    # Master: a TrainJob has workers only; one more worker replaces the "
                        "master\n    replicas: 4\n"));
  // Another training on the master cannot be converted.
  parts.more_replicas.replace(parts.more_replicas.find("mrpc"), 4, "qqp");
  EXPECT_THAT(
      errors_of(job(parts)),
      HasSubstr("spec.pytorchReplicaSpecs.Master.template.spec.containers[0].command: found "
                "another command than that of the Worker, expected the same"));
  // A master alone.
  std::string only =
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: qa}\nspec:\n"
      "  pytorchReplicaSpecs:\n" +
      master;
  EXPECT_THAT(manifest_of(only), HasSubstr("    replicas: 1\n"));
}

TEST(Convert, PathsOnVolumes) {
  const auto output = [](const std::string& directory, const std::string& mounts) {
    std::string text = manifest_of(
        job({.command = "[python, run_glue.py, --model_name_or_path, m, --task_name, mrpc, "
                        "--output_dir, " +
                        directory + "]",
             .mounts = mounts,
             .volumes = "[{name: disk, persistentVolumeClaim: {claimName: a}}, {name: other, "
                        "persistentVolumeClaim: {claimName: b}}]"}));
    const std::size_t from = text.find("    output: ") + 12;
    return text.substr(from, text.find('\n', from) - from);
  };
  EXPECT_EQ(output("/data/a/b", "[{name: disk, mountPath: /data}]"), "disk:a/b");
  EXPECT_EQ(output("/data/a/b/", "[{name: disk, mountPath: /data/}]"), "disk:a/b");
  EXPECT_EQ(output("/data/./a//b/../c", "[{name: disk, mountPath: /data}]"), "disk:a/c");
  // subPath, and the longest mount that fits.
  EXPECT_EQ(output("/data/a", "[{name: disk, mountPath: /data, subPath: team/x}]"),
            "disk:team/x/a");
  EXPECT_EQ(output("/data/deep/a",
                   "[{name: disk, mountPath: /data}, {name: other, mountPath: /data/deep}]"),
            "other:a");
  // /database is not below /data.
  EXPECT_EQ(output("/database/a",
                   "[{name: disk, mountPath: /data}, {name: other, mountPath: /database}]"),
            "other:a");
  // Relative paths, from the working directory.
  EXPECT_THAT(manifest_of(job({.command = "[python, run_glue.py, --model_name_or_path, ./model, "
                                          "--task_name, mrpc, --output_dir, out]",
                               .container = "            workingDir: /data/work\n"})),
              HasSubstr("    model: disk:work/model\n    task: mrpc\n    output: disk:work/out\n"));
  EXPECT_THAT(
      manifest_of(job({.command = "[/bin/bash, -c, 'cd /data; python run_glue.py "
                                  "--model_name_or_path m --task_name mrpc --output_dir out']"})),
      HasSubstr("    output: disk:out\n"));
}

// The scripts take a directory of that name first, which only the volume knows.
TEST(Convert, ANameOnTheHubThatMayBeADirectory) {
  const auto with_directory = [](const std::string& directory, const std::string& mounts) {
    return manifest_of(
        job({.container = "            workingDir: " + directory + "\n", .mounts = mounts}));
  };
  const std::string mounts = "[{name: disk, mountPath: /data}]";
  EXPECT_THAT(with_directory("/data/work", mounts),
              HasSubstr("    # --model_name_or_path bert-base-cased: taken as a name on the hub; a "
                        "directory of that name\n    # would be disk:work/bert-base-cased\n"
                        "    model: bert-base-cased\n"));
  EXPECT_THAT(with_directory("/work", mounts), Not(HasSubstr("taken as a name")));
  EXPECT_THAT(
      manifest_of(job({.command = "[/bin/bash, -c, 'cd /data; python run_glue.py "
                                  "--model_name_or_path org/m --task_name mrpc --output_dir o']"})),
      HasSubstr("directory of that name would be\n    # disk:org/m\n    model: org/m\n"));
}

// As the kubelet expands it: with the variables of the container.
TEST(Convert, ASubPathOfVariables) {
  const auto of_variable = [](const std::string& variable) {
    return job({.container = "            env: [{name: A, " + variable + "}]\n",
                .mounts = "[{name: disk, mountPath: /data, subPathExpr: \"team/$(A)\"}]"});
  };
  EXPECT_THAT(manifest_of(of_variable("value: x")), HasSubstr("    output: disk:team/x/out\n"));
  EXPECT_EQ(errors_of(of_variable("valueFrom: {fieldRef: {fieldPath: metadata.name}}")),
            "job.yaml:13: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command[6]: "
            "--output_dir: found /data/out on a volume with subPathExpr team/$(A), expected a "
            "plain value of A in env");
  EXPECT_THAT(
      errors_of(job({.container = "            env: [{name: PET_NNODES, value: x}]\n",
                     .mounts = "[{name: disk, mountPath: /data, subPathExpr: $(PET_NNODES)}]"})),
      HasSubstr("with subPathExpr $(PET_NNODES), expected a path without PET_NNODES, which the "
                "operator sets"));
}

TEST(Convert, AVariableThatOnlyThePodKnows) {
  const std::string glue =
      "run_glue.py --model_name_or_path m --task_name mrpc --output_dir /data/out ";
  const auto of_script = [](const std::string& script, const std::string& container) {
    return job({.command = "[/bin/bash, -c, '" + script + "']", .container = container});
  };
  const std::string from_field =
      "            env: [{name: RUN, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]\n";
  const std::string from_config_map =
      "            envFrom: [{prefix: R, configMapRef: {name: c}}]\n";
  const std::string place =
      "job.yaml:13: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command";
  const std::string refused =
      "found $RUN, whose value only the pod knows, expected a plain value "
      "in env";
  const std::pair<std::string, std::string> cases[] = {
      {"python " + glue + "--output_dir /data/runs/$RUN", place + "[2]: --output_dir: " + refused},
      {"python " + glue + "--seed=$RUN", place + ": --seed: " + refused},
      {"python " + glue + "$RUN", place + ": " + refused},
      {"torchrun --nproc_per_node $RUN " + glue, place + ": --nproc_per_node: " + refused},
      {"python " + glue + "--output_dir /data/$(date +$RUN)", place + ": bash -c: " + refused},
      {"cd /data/$RUN; python " + glue + "--output_dir o", place + "[2]: --output_dir: " + refused},
      {"export MINE=$RUN; python " + glue, place + "[2]: MINE: " + refused},
  };
  for (const auto& [script, error] : cases) {
    EXPECT_EQ(errors_of(of_script(script, from_field)), error);
    EXPECT_EQ(errors_of(of_script(script, from_config_map)), error);
  }
  // Its prefix differs, so that the variable is not set.
  EXPECT_THAT(
      manifest_of(of_script("python " + glue + "--output_dir /data/o$OTHER", from_config_map)),
      HasSubstr("    output: disk:o\n"));
  // What a TrainJob does not need may have any value.
  Parts parts = {.command =
                     "[/bin/bash, -c, 'torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK "
                     "--master_addr=$MASTER_ADDR " +
                     glue + "--logging_dir /logs/$HOSTNAME']"};
  parts.more_replicas =
      "    Master: {template: {spec: {containers: [{name: pytorch, image: i, command: [" +
      std::string("/bin/bash, -c, 'torchrun ") + glue + "--logging_dir /logs/$HOSTNAME']}]}}}\n";
  EXPECT_THAT(manifest_of(job(parts)),
              AllOf(HasSubstr("# --nnodes $WORLD_SIZE: minReplicas and maxReplicas set it\n"),
                    HasSubstr("# --node_rank $RANK: the operator starts the processes"),
                    HasSubstr("# --master_addr $MASTER_ADDR: the operator starts the"),
                    HasSubstr("    output: disk:out\n")));
}

// With envFrom any variable may be one of the container.
TEST(Convert, AnAssignmentThatMayReplaceAVariableOfEnvFrom) {
  const std::string text = manifest_of(
      job({.command = "[/bin/bash, -c, 'RUN=$HOSTNAME; OUT=/data/out; torchrun run_glue.py "
                      "--model_name_or_path m --task_name mrpc --output_dir $OUT']",
           .container = "            envFrom: [{configMapRef: {name: c}}]\n"}));
  EXPECT_THAT(text, AllOf(HasSubstr("    output: disk:out\n"), Not(HasSubstr("name: OUT"))));
}

// transformers expands output_dir with os.path.expanduser(), and no other path.
TEST(Convert, AnOutputInTheHomeDirectory) {
  const auto with_home = [](const std::string& output, const std::string& variable) {
    return job(
        {.command = "[python, run_glue.py, --model_name_or_path, m, --train_file, ~/t.csv, "
                    "--output_dir, " +
                    output + ", --do_train]",
         .container = "            workingDir: /data/code\n            env: [" + variable + "]\n"});
  };
  const std::string home = "{name: HOME, value: /data/home}";
  EXPECT_THAT(manifest_of(with_home("~/out", home)),
              HasSubstr("    train_file: \"disk:code/~/t.csv\"\n    output: disk:home/out\n"));
  const std::string refused =
      "job.yaml:13: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command[6]: "
      "--output_dir: found ";
  EXPECT_EQ(errors_of(with_home("~/out", "")),
            refused + "~/out, expected a path without ~ or a plain value of HOME in env");
  EXPECT_EQ(errors_of(with_home("~me/out", home)),
            refused + "~me/out, expected a path without the home directory of another user");
}

TEST(Convert, FilesOfOnesOwn) {
  EXPECT_THAT(manifest_of(job({.command = "[python, run_glue.py, --model_name_or_path, /data/m, "
                                          "--train_file, /data/train.csv, --validation_file, "
                                          "/data/dev.csv, --cache_dir, /data/cache, --output_dir, "
                                          "/data/o]"})),
              HasSubstr("    model: disk:m\n    train_file: disk:train.csv\n    validation_file: "
                        "disk:dev.csv\n    output: disk:o\n    cache_dir: disk:cache\n"));
  EXPECT_EQ(
      errors_of(job({.command = "[python, run_glue.py, --model_name_or_path, m, "
                                "--train_file, /elsewhere/train.csv, --output_dir, "
                                "/data/o]"})),
      "job.yaml:13: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command[4]: "
      "--train_file: found /elsewhere/train.csv, which is on no volume of the pod, expected a "
      "path below a mountPath of volumeMounts");
}

TEST(Convert, FieldsThatNoPodHas) {
  const std::string text = manifest_of(
      job({.container = "            envs: [{name: A, value: b}]\n"
                        "            livenessProbe: {exec: {command: [a]}}\n"
                        "            tty: true\n",
           .pod = "          nodeSelectr: {disk: ssd}\n          hostnameOverride: a\n"}));
  EXPECT_THAT(
      text, AllOf(HasSubstr("# spec.nodeSelectr: unknown field; did you mean nodeSelector?\n"),
                  HasSubstr("# envs: unknown field; did you mean env?\n"),
                  HasSubstr("# livenessProbe: the operator sets the probes and lifecycle of a "
                            "worker\n"),
                  HasSubstr("# tty: a TrainJob has no such field\n"),
                  HasSubstr("        hostnameOverride: a\n"), Not(HasSubstr("    nodeSelectr:"))));
}

TEST(Convert, QuestionsOfOnesOwn) {
  const auto made = [](const std::string& flag) {
    return manifest_of(
        job({.command = "[python, run_qa.py, --model_name_or_path, mini, --train_file, "
                        "/data/train.json, --do_train, --output_dir, /data/o" +
                        flag + "]"}));
  };
  EXPECT_THAT(made(""),
              HasSubstr("    model: mini\n    # run_qa.py with files of your own: question "
                        "answering\n    task: squad\n    train_file: "
                        "disk:train.json\n"));
  EXPECT_THAT(made(", --version_2_with_negative"), HasSubstr("    task: squad_v2\n"));
  EXPECT_THAT(made(", --task_name, squad"), HasSubstr("    model: mini\n    task: squad\n"));
}

TEST(Convert, AnOutputOnNoVolume) {
  const std::string text =
      manifest_of(job({.command = "[python, run_glue.py, --model_name_or_path, m, --task_name, "
                                  "mrpc, --output_dir, /tmp/mrpc/]",
                       .mounts = "[]",
                       .volumes = "[]"}));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"(    # --output_dir /tmp/mrpc/: on no volume, so the trained model ends with its pod and no restart
    # finds a checkpoint; name a persistentVolumeClaim instead of the emptyDir
    output: scratch:tmp/mrpc
)"));
  EXPECT_THAT(text, HasSubstr("  volumes:\n    - name: scratch\n      emptyDir: {}\n"));
}

TEST(Convert, AnOutputOnNoVolumeBesideAVolumeNamedScratch) {
  const std::string text = manifest_of(
      job({.command = "[python, run_glue.py, --model_name_or_path, /in/m, --task_name, mrpc, "
                      "--output_dir, /tmp/mrpc]",
           .mounts = "[{name: scratch, mountPath: /in}]",
           .volumes = "[{name: scratch, persistentVolumeClaim: {claimName: mine}}, "
                      "{name: scratch-2, persistentVolumeClaim: {claimName: other}}]"}));
  EXPECT_THAT(text, HasSubstr("    model: scratch:m\n"));
  EXPECT_THAT(text, HasSubstr("    output: scratch-3:tmp/mrpc\n"));
  EXPECT_THAT(text, HasSubstr("    - name: scratch-3\n      emptyDir: {}\n"));
}

TEST(Convert, Resources) {
  EXPECT_THAT(
      manifest_of(job({.container = R"(            env: [{name: ANY, value: "y"}]
)"})),
      HasSubstr("    resources:\n      cpu: 2\n      memory: 4Gi\n    env:\n      - name: ANY\n"
                "        value: \"y\"\n"));
  std::string other = job({});
  const std::string limits = "{limits: {cpu: 2, memory: 4Gi}}";
  const auto with_resources = [&](const std::string& resources) {
    std::string text = other;
    return manifest_of(text.replace(text.find(limits), limits.size(), resources));
  };
  EXPECT_THAT(with_resources("{limits: {cpu: 0.5, memory: 4Gi, nvidia.com/gpu: 1}, requests: {cpu: "
                             "250m, ephemeral-storage: 1Gi}}"),
              HasSubstr(R"(    resources:
      # requests cpu 250m: a worker requests its limit
      cpu: "0.5"
      # requests ephemeral-storage 1Gi: also the limit of a worker
      ephemeral-storage: 1Gi
      memory: 4Gi
)"));
  EXPECT_THAT(
      with_resources("{limits: {cpu: 1, memory: 4Gi, nvidia.com/gpu: 1}}"),
      HasSubstr("    # nvidia.com/gpu 1: Tilewright computes on CPUs only\n    resources:\n"));
  EXPECT_THAT(with_resources("{limits: {cpu: 1}, requests: {memory: 4Gi}}"),
              HasSubstr("      cpu: 1\n      # requests memory 4Gi: also the limit of a worker\n"
                        "      memory: 4Gi\n"));
  EXPECT_THAT(with_resources("{}"),
              HasSubstr("    # cpu: the pod has no limit, but a worker needs one; set it\n"
                        "    # memory: the pod has no limit"));
}

TEST(Convert, Environment) {
  EXPECT_THAT(manifest_of(job({.container = R"(            env:
            - {name: ROOT, value: /data}
            - {name: HF_HOME, value: $(ROOT)/hf}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
            - {name: KMP_AFFINITY, value: "granularity=fine,compact,1,0"}
            - {name: I_MPI_PIN_DOMAIN, value: "[0xfffffff0]"}
            - {name: MASTER_PORT, value: "29500"}
            - {name: TILEWRIGHT_JOB_NAME, value: x}
            - {name: MY_OWN, value: "1"}
)"})),
              HasSubstr(R"(    env:
      # ROOT /data: the volume is at /mnt/tilewright/disk
      - name: ROOT
        value: /mnt/tilewright/disk
      # HF_HOME /data/hf: the volume is at /mnt/tilewright/disk
      - name: HF_HOME
        value: /mnt/tilewright/disk/hf
      - name: HF_TOKEN
        valueFrom:
          secretKeyRef:
            name: hub
            key: token
      - name: MY_OWN
        value: "1"
      # I_MPI_PIN_DOMAIN [0xfffffff0]: the worker exchanges gradients itself, on its own threads;
      # under mpiexec it uses the CPUs to which mpiexec has bound it
      # KMP_AFFINITY granularity=fine,compact,1,0: only oneDNN uses OpenMP, with
      # --gemm_backend=onednn; the worker runs one thread on each physical core that it may use
      # MASTER_PORT 29500: the operator sets it
      # TILEWRIGHT_JOB_NAME x: the operator sets it
)"));
}

// A variable that the script sets replaces the container's.
// The kubelet expands the values of the TrainJob again.
TEST(Convert, KeepsDollarSignsThatAreNoReferences) {
  EXPECT_THAT(manifest_of(job({.container = R"yaml(            env:
            - {name: A, value: a}
            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: B, value: "$$(A) $(A) $(POD) $5"}
            - {name: C, value: "$(B)"}
)yaml"})),
              AllOf(HasSubstr("      - name: B\n        value: $$(A) a $(POD) $5\n"),
                    HasSubstr("      - name: C\n        value: $$(A) a $(POD) $5\n")));
}

TEST(Convert, VariablesOfTheScript) {
  EXPECT_THAT(
      manifest_of(job({.command = "[/bin/bash, -c, 'export OMP_NUM_THREADS=8; KMP_BLOCKTIME=1 "
                                  "python run_glue.py --model_name_or_path bert-base-cased "
                                  "--task_name mrpc --output_dir /data/out']",
                       .container = "            env: [{name: OMP_NUM_THREADS, value: \"4\"}]\n"})),
      HasSubstr(R"(    env:
      - name: OMP_NUM_THREADS
        value: "8"
      # KMP_BLOCKTIME 1: only oneDNN uses OpenMP, with --gemm_backend=onednn; the worker runs one
      # thread on each physical core that it may use
)"));
}

TEST(Convert, Scheduling) {
  EXPECT_THAT(manifest_of(job({.pod = R"(          nodeSelector: {pool: cpu}
          tolerations: [{key: dedicated, operator: Exists}]
          serviceAccountName: trainer
          priorityClassName: high
          schedulerName: volcano
          imagePullSecrets: [{name: registry}]
          terminationGracePeriodSeconds: 60
          securityContext: {runAsUser: 1000, fsGroup: 2000, runAsNonRoot: true}
)"})),
              HasSubstr(R"(    nodeSelector:
      pool: cpu
    tolerations:
      - key: dedicated
        operator: Exists
    serviceAccountName: trainer
    priorityClassName: high
    schedulerName: volcano
    imagePullSecrets:
      - name: registry
    terminationGracePeriodSeconds: 60
    runAsUser: 1000
    fsGroup: 2000
)"));
}

TEST(Convert, WhatPodSecurityForbids) {
  const std::string text = manifest_of(job(
      {.container = "            securityContext: {privileged: true, capabilities: {add: "
                    "[IPC_LOCK]}}\n",
       .pod = "          hostNetwork: true\n          hostIPC: true\n          securityContext: "
              "{runAsUser: 0}\n"}));
  EXPECT_THAT(text, HasSubstr("# runAsUser 0: restricted Pod Security forbids root"));
  EXPECT_THAT(text, HasSubstr("# hostNetwork: found true"));
  EXPECT_THAT(text, HasSubstr("# hostIPC: found true"));
  EXPECT_THAT(text, HasSubstr("# securityContext privileged: the operator sets what restricted Pod "
                              "Security requires"));
  EXPECT_THAT(text, Not(HasSubstr("\n      spec:\n        host")));
}

TEST(Convert, NamesEachVolumeThatPodSecurityForbids) {
  const std::string text = manifest_of(
      job({.mounts = "[{name: disk, mountPath: /data}, {name: a, mountPath: /a}, {name: b, "
                     "mountPath: /b}]",
           .volumes = "[{name: disk, persistentVolumeClaim: {claimName: disk}}, {name: a, "
                      "hostPath: {path: /a}}, {name: b, hostPath: {path: /b}}]"}));
  EXPECT_THAT(text, HasSubstr("# hostPath of a: found hostPath, which restricted"));
  EXPECT_THAT(text, HasSubstr("# hostPath of b: found hostPath, which restricted"));
}

TEST(Convert, TheRestOfThePod) {
  EXPECT_THAT(
      manifest_of(job({.container = "            lifecycle: {}\n            tty: true\n",
                       .mounts = "[{name: disk, mountPath: /data}, {name: settings, "
                                 "mountPath: /etc/settings}]",
                       .volumes = "[{name: disk, persistentVolumeClaim: {claimName: disk}}, "
                                  "{name: settings, configMap: {name: options}}]",
                       .pod = "          dnsPolicy: Default\n",
                       .template_metadata = "        metadata: {labels: {team: blue}, "
                                            "annotations: {example.org/note: text}}\n"})),
      HasSubstr(R"(    podTemplate:
      metadata:
        labels:
          team: blue
        annotations:
          example.org/note: text
      spec:
        volumes:
          - name: settings
            configMap:
              name: options
        dnsPolicy: Default
        containers:
          - name: worker
            volumeMounts:
              - name: settings
                mountPath: /etc/settings
)"));
}

TEST(Convert, SharedMemory) {
  EXPECT_THAT(
      manifest_of(job({.mounts = "[{name: disk, mountPath: /data}, {name: dshm, mountPath: "
                                 "/dev/shm/}]",
                       .volumes = "[{name: disk, persistentVolumeClaim: {claimName: disk}}, "
                                  "{name: dshm, emptyDir: {medium: Memory, sizeLimit: "
                                  "1Gi}}]"})),
      HasSubstr("    sharedMemory: 1Gi\n"));
}

TEST(Convert, Images) {
  EXPECT_THAT(manifest_of(job({.image = "registry.example.org:5000/a/tilewright-worker:7"})),
              HasSubstr("    image: registry.example.org:5000/a/tilewright-worker:7\n"));
  EXPECT_THAT(
      manifest_of(job({.image = "intel/intel-optimized-pytorch:latest"})),
      HasSubstr(std::string("    # image intel/intel-optimized-pytorch:latest: Tilewright's "
                            "trainer has its own image\n    image: "
                            "tilewright-worker:") +
                kVersion + "\n"));
}

TEST(Convert, Flags) {
  EXPECT_THAT(
      manifest_of(job({.command = flags("--overwrite_output_dir, 'True', --no_cuda, 'True', "
                                        "--warmup_ratio=0.1, --adam_beta1, '0.8', --seed, '7', "
                                        "--no_do_eval, --evaluation_strategy, epoch, "
                                        "--per_gpu_train_batch_size, '16', --run_name, \"a: b\", "
                                        "--xpu_backend, ccl")})),
      HasSubstr(R"(    output: disk:out
    do_eval: false
    per_device_train_batch_size: 16
    adam_beta1: 0.8
    warmup_ratio: 0.1
    seed: 7
    eval_strategy: epoch
    overwrite_output_dir: true
    run_name: "a: b"
    # --ddp_backend: the workers choose shared memory or TCP themselves
    # --no_cuda: Tilewright computes on CPUs only
)"));
  for (const char* token : {"--token, hf_secret", "--use_auth_token, hf_secret"}) {
    EXPECT_THAT(manifest_of(job({.command = flags(token)})),
                ::testing::AllOf(HasSubstr("# --token: a manifest must not contain a token"),
                                 Not(HasSubstr("hf_secret"))));
  }
  EXPECT_THAT(manifest_of(job({.command = flags("--use_auth_token, 'True'")})),
              HasSubstr("    # --use_auth_token: the token of HF_TOKEN or of the token file is "));
  EXPECT_THAT(manifest_of(job({.command = flags("--num_train, '2', --save_ste, '0.1'")})),
              HasSubstr("    num_train_epochs: 2\n    save_steps: 0.1\n"));
  EXPECT_THAT(errors_of(job({.command = "[python, run_glue.py, --model_name_or_path, m, --train_f, "
                                        "/elsewhere/train.csv, --output_dir, /data/o]"})),
              HasSubstr(".command[4]: --train_file: found /elsewhere/train.csv"));
}

TEST(Convert, Metadata) {
  EXPECT_THAT(
      manifest_of(
          job({.metadata = "{generateName: qa-, labels: {kueue.x-k8s.io/queue-name: batch}, "
                           "annotations: {note: long, "
                           "kubectl.kubernetes.io/last-applied-configuration: '{}'}}"})),
      HasSubstr(
          "metadata:\n  generateName: qa-\n  labels:\n    kueue.x-k8s.io/queue-name: batch\n  "
          "annotations:\n    note: long\nspec:\n"));
}

TEST(Convert, SaysWhyAJobDoesNotRunNatively) {
  EXPECT_THAT(errors_of(job({.command = "[torchrun, train.py]"})),
              HasSubstr("job.yaml:13: "
                        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command: "));
  EXPECT_THAT(errors_of(job({.command = "[torchrun, train.py]"})), HasSubstr("train.py"));
  EXPECT_THAT(errors_of(job({.command = "[]"})), HasSubstr("found no command"));
  EXPECT_THAT(errors_of(job({.command = flags("--fp16")})), HasSubstr("fp16"));
  EXPECT_THAT(errors_of(job({.command = "[python, run_glue.py, flags.json]"})),
              HasSubstr("found a file of flags"));
  // A volume that a TrainJob cannot have.
  EXPECT_THAT(errors_of(job({.volumes = "[{name: disk, hostPath: {path: /d}}]"})),
              HasSubstr("job.yaml:9: spec.pytorchReplicaSpecs.Worker.template.spec.volumes[0]: "
                        "spec.volumes[0].hostPath of the TrainJob: found hostPath"));
}

}  // namespace
}  // namespace tilewright::convert
