#include "controller/api/command.h"

#include <gmock/gmock.h>

#include "common/contract/training_flags.h"
#include "tests/support/scoped_variable.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using testing::job_of;
using testing::with;

std::vector<std::string> pod_command(const TrainJob& job) { return worker_command(job, pod_path); }

TEST(WorkerCommand, PassesTheManifestAsFlags) {
  const std::vector<std::string> expected = {
      "tilewright-worker",
      "train",
      "--task_name=mrpc",
      "--model_name_or_path=/mnt/tilewright/models/minilm",
      "--data_dir=/mnt/tilewright/data/MRPC",
      "--output_dir=/mnt/tilewright/output/$(TILEWRIGHT_JOB_NAME)",
      "--learning_rate=0.0001",
      "--per_device_train_batch_size=16",
      "--virtual_shards=8",
      "--nominal_workers=2",
      "--max_workers=4"};
  EXPECT_EQ(pod_command(job_of()), expected);
}

TEST(WorkerCommand, PassesNamesOfTheHubAndTheirCache) {
  const std::string manifest =
      with("models:minilm", "distilbert-base-uncased",
           with("    task: mrpc\n", "    dataset_name: squad\n",
                with("    data: data:MRPC\n", "    cache: data:hub\n    use_ipex: true\n")));
  const std::vector<std::string> words = pod_command(job_of(manifest));
  const std::vector<std::string> expected = {
      "tilewright-worker",
      "train",
      "--model_name_or_path=distilbert-base-uncased",
      "--output_dir=/mnt/tilewright/output/$(TILEWRIGHT_JOB_NAME)",
      "--cache_dir=/mnt/tilewright/data/hub",
      "--dataset_name=squad",
      "--learning_rate=0.0001",
      "--per_device_train_batch_size=16",
      "--virtual_shards=8",
      "--nominal_workers=2",
      "--max_workers=4"};
  EXPECT_EQ(words, expected);
}

TEST(WorkerCommand, ParsesAsTrainingArguments) {
  std::vector<std::string> words = pod_command(
      job_of(with("learning_rate: 1e-4",
                  "bf16: false\n    run_name: a b\n    resume_from_checkpoint: output:c")));
  words.erase(words.begin(), words.begin() + 2);
  const auto parsed = TrainingArguments::parse(words);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_FALSE(parsed->settings().bf16);
  EXPECT_EQ(parsed->settings().run_name, "a b");
  EXPECT_EQ(parsed->settings().resume_from_checkpoint, "/mnt/tilewright/output/c");
  EXPECT_EQ(parsed->settings().max_workers, 4);
}

TEST(WorkerCommand, StartsAnAgentForSeveralProcesses) {
  for (const char* word : {"auto", "cpu"}) {
    const auto automatic =
        pod_command(job_of(with("nprocPerNode: 1", std::string("nprocPerNode: ") + word)));
    EXPECT_THAT(automatic, ::testing::Contains("--nproc_per_node=auto")) << word;
    EXPECT_THAT(automatic, ::testing::Contains("--nominal_workers=2")) << word;
  }
  const auto words = pod_command(job_of(with("nprocPerNode: 1", "nprocPerNode: 2")));
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 7),
            (std::vector<std::string>{"tilewright-worker", "agent", "--nproc_per_node=2",
                                      "--max_restarts=0", "--shutdown_timeout=30", "--", "train"}));
  const std::string patient = with("sharedMemory: 64Mi", "terminationGracePeriodSeconds: 300",
                                   with("nprocPerNode: 1", "nprocPerNode: 2"));
  EXPECT_THAT(pod_command(job_of(patient)), ::testing::Contains("--shutdown_timeout=300"));
  EXPECT_EQ(words[words.size() - 2], "--nominal_workers=4");
  EXPECT_EQ(words.back(), "--max_workers=8");
}

TEST(WorkerEnvironment, SetsTlsIfTheManifestEnablesIt) {
  const std::string place = "rdzvBackend: c10d";
  const auto value_of = [&](const std::string& manifest) -> std::string {
    for (const auto& [name, value] : worker_environment(job_of(manifest), {"host:1", "/key", 0}))
      if (name == "TILEWRIGHT_TLS") return value;
    return "";
  };
  EXPECT_EQ(value_of(with(place, "rdzvConf: [{key: tls, value: \"true\"}]")), "true");
  EXPECT_EQ(value_of(with(place, "rdzvConf: [{key: tls, value: \"false\"}]")), "");
  EXPECT_EQ(value_of(with(place, place)), "");
  EXPECT_TRUE(is_runtime_variable("TILEWRIGHT_TLS"));
}

TEST(WorkerCommand, KeepsNominalWorkersAndShardsOfTheFirstStart) {
  TrainJob job = job_of();
  job.status.nominal_workers = 2;
  job.status.virtual_shards = 4;
  job.spec.worker.replicas = 3;
  const auto words = pod_command(job);
  EXPECT_EQ(words[words.size() - 3], "--virtual_shards=4");
  EXPECT_EQ(words[words.size() - 2], "--nominal_workers=2");
}

TEST(WorkerCommand, ExpandsVariablesAsTheKubeletDoes) {
  const TrainJob job = job_of(with("sharedMemory: 64Mi",
                                   "env:\n      - {name: RUN, value: \"$(TILEWRIGHT_JOB_NAME)-$"
                                   "(TILEWRIGHT_WORKER_INDEX)\"}"));
  const Environment variables = expand_environment(worker_environment(job, {"h:1", "/key", 1}));
  EXPECT_EQ(variables.at("RUN"), "mrpc-1");
  EXPECT_EQ(variables.at("TILEWRIGHT_RENDEZVOUS"), "h:1");
  EXPECT_EQ(variables.at("TILEWRIGHT_JOB_KEY_FILE"), "/key");
  EXPECT_EQ(expand_command(pod_command(job), variables)[5],
            "--output_dir=/mnt/tilewright/output/mrpc");
}

TEST(TrainerPath, ResolvesToTheLocalDirectoryOfTheVolume) {
  const TrainJob job = job_of();
  EXPECT_EQ(local_path(job, "/home/me/examples", {"models", "minilm"}), "/home/me/models/minilm");
  EXPECT_EQ(local_path(job, "/home/me/examples", {"data", ""}), "/home/me/examples/data");
  TrainJob absolute = job;
  absolute.spec.volumes[1].local = "/srv/data";
  EXPECT_EQ(local_path(absolute, "/home/me", {"data", "x"}), "/srv/data/x");
  const tilewright::testing::ScopedVariable home("HOME", "/home/you");
  absolute.spec.volumes[1].local = "~/data";
  EXPECT_EQ(local_path(absolute, "/home/me", {"data", "x"}), "/home/you/data/x");
  absolute.spec.volumes[1].local = "~data";
  EXPECT_EQ(local_path(absolute, "/home/me", {"data", "x"}), "/home/me/~data/x");
}

TEST(TrainerPath, SplitsAtTheFirstColon) {
  EXPECT_EQ(*parse_trainer_path("v:a:b/c"), (TrainerPath{"v", "a:b/c"}));
  EXPECT_EQ(*parse_trainer_path("v:"), (TrainerPath{"v", ""}));
  EXPECT_EQ(*parse_trainer_path("v:..a/b.."), (TrainerPath{"v", "..a/b.."}));
  for (const char* text : {"", "v", ":a", "v:/a", "v:..", "v:a/..", "v:a/../b"}) {
    EXPECT_FALSE(parse_trainer_path(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tilewright::api
