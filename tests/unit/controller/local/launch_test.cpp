// The command of a local worker and the checks of its directories.
#include "controller/local/launch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "controller/api/defaults.h"
#include "tests/support/paths.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

api::TrainJob make_job() {
  api::TrainJob job;
  job.metadata.name = "mrpc";
  job.metadata.uid = "u-1";
  job.spec.trainer = {"mrpc", "models:m", "data:$(TILEWRIGHT_JOB_NAME)/d", "output:o", {}, {}};
  job.spec.trainer.flags = {{"run_name", "$(GREETING) $$(HOME) $(UNSET)"}};
  job.spec.volumes = {{"models", "m", {}}, {"data", "../d", {}}, {"output", "/abs/out", {}}};
  job.spec.worker.replicas = 2;
  job.spec.worker.env = {{"GREETING", "hello $(TILEWRIGHT_WORKER_INDEX)", {}},
                         {"PATH", "/job/bin", {}}};
  api::apply_defaults(job);
  return job;
}

// Two cores with hyper-threads.
host::Host four_cpus() {
  host::Host host;
  for (int cpu = 0; cpu < 4; ++cpu)
    host.topology.cpus.push_back({.id = cpu, .core = cpu % 2, .package = 0, .node = 0});
  host.topology.memory_nodes = {0};
  host.allowed = {0, 1, 2, 3};
  return host;
}

TEST(Launch, ExpandsArgumentsAndVariablesAsAKubeletWould) {
  LaunchConfig config;
  config.worker_program = "/opt/worker";
  config.manifest_folder = "/manifests/mrpc";
  config.key_file = "/state/job-key";
  config.rendezvous = "127.0.0.1:5";
  config.host = four_cpus();
  config.environment = {"PATH=/usr/bin", "HOME=/home/me", "TILEWRIGHT_WORKER_INDEX=9",
                        "TILEWRIGHT_ISA=avx2"};
  const ChildCommand command = command_for(make_job(), {"mrpc-worker-1", 1}, config);
  EXPECT_EQ(command.program, "/opt/worker");
  ASSERT_FALSE(command.arguments.empty());
  EXPECT_EQ(command.arguments[0], "train");
  EXPECT_THAT(command.arguments, Contains("--model_name_or_path=/manifests/mrpc/m/m"));
  EXPECT_THAT(command.arguments, Contains("--data_dir=/manifests/d/mrpc/d"));
  EXPECT_THAT(command.arguments, Contains("--output_dir=/abs/out/o"));
  EXPECT_THAT(command.arguments, Contains("--run_name=hello 1 $(HOME) $(UNSET)"));
  EXPECT_THAT(command.environment, Contains("TILEWRIGHT_WORKER_INDEX=1"));
  EXPECT_THAT(command.environment, Not(Contains("TILEWRIGHT_WORKER_INDEX=9")));
  EXPECT_THAT(command.environment, Contains("TILEWRIGHT_RENDEZVOUS=127.0.0.1:5"));
  EXPECT_THAT(command.environment, Contains("TILEWRIGHT_JOB_KEY_FILE=/state/job-key"));
  EXPECT_THAT(command.environment, Contains("TILEWRIGHT_JOB_UID=u-1"));
  EXPECT_THAT(command.environment, Contains("TILEWRIGHT_ISA=avx2")) << "inherited";
  EXPECT_THAT(command.environment, Contains("PATH=/job/bin"));
  EXPECT_THAT(command.environment, Not(Contains("PATH=/usr/bin")));
  EXPECT_EQ(command.cpus, (std::vector<int>{1, 3})) << "the second of two cores";
  // A job that was scaled up has indices beyond its number of workers.
  EXPECT_EQ(command_for(make_job(), {"mrpc-worker-2", 2}, config).cpus, (std::vector<int>{0, 2}));
}

TEST(Launch, DividesAQuotaAmongTheWorkers) {
  api::TrainJob job = make_job();
  LaunchConfig config;
  config.host = four_cpus();
  config.manifest_folder = "/manifests";
  const auto arguments = [&] { return command_for(job, {"mrpc-worker-1", 1}, config).arguments; };
  EXPECT_THAT(arguments(), Not(Contains(HasSubstr("--threads")))) << "the CPUs are divided";
  job.spec.worker.replicas = job.spec.elastic_policy.max_replicas = 4;
  EXPECT_THAT(arguments(), Contains("--threads=1")) << "more workers than cores";
  job.spec.worker.replicas = 2;
  config.host.quota = 1;
  EXPECT_THAT(arguments(), Contains("--threads=1"));
  job.spec.trainer.flags["threads"] = "3";
  EXPECT_THAT(arguments(), Not(Contains("--threads=1"))) << "the manifest says so";
  job.spec.trainer.flags.erase("threads");
  job.spec.worker.replicas = job.spec.elastic_policy.min_replicas = 1;
  EXPECT_THAT(arguments(), Not(Contains(HasSubstr("--threads")))) << "the worker reads the quota";
}

TEST(Launch, DividesAQuotaAmongTheProcessesOfANumaNodeEach) {
  api::TrainJob job = make_job();
  job.spec.nproc_per_node->automatic = true;
  LaunchConfig config;
  // Four NUMA nodes of two cores, of which each worker has two nodes.
  for (int cpu = 0; cpu < 8; ++cpu) {
    config.host.topology.cpus.push_back({.id = cpu, .core = cpu, .package = 0, .node = cpu / 2});
    config.host.allowed.push_back(cpu);
  }
  config.host.topology.memory_nodes = {0, 1, 2, 3};
  config.host.quota = 4;
  config.manifest_folder = "/manifests";
  // Two threads of each worker for two processes.
  EXPECT_THAT(command_for(job, {"mrpc-worker-1", 1}, config).arguments, Contains("--threads=1"));
  job.spec.nproc_per_node = 1;
  EXPECT_THAT(command_for(job, {"mrpc-worker-1", 1}, config).arguments, Contains("--threads=2"));
}

// `tilewright convert` writes such variables.
TEST(Launch, ReplacesTheDirectoryOfAVolumeInVariables) {
  api::TrainJob job = make_job();
  job.spec.worker.env = {{"HF_HUB_CACHE", "/mnt/tilewright/models/hub", {}},
                         {"ROOT", "/mnt/tilewright/output", {}},
                         {"OTHER", "/mnt/tilewright/elsewhere/x", {}}};
  LaunchConfig config;
  config.host = four_cpus();
  config.manifest_folder = "/manifests";
  const ChildCommand command = command_for(job, {"mrpc-worker-0", 0}, config);
  EXPECT_THAT(command.environment, Contains("HF_HUB_CACHE=/manifests/m/hub"));
  EXPECT_THAT(command.environment, Contains("ROOT=/abs/out"));
  EXPECT_THAT(command.environment, Contains("OTHER=/mnt/tilewright/elsewhere/x"));
}

TEST(Launch, RequiresInputFoldersAndCreatesTheOutputVolume) {
  const testing::TemporaryDirectory folder;
  api::TrainJob job = make_job();
  job.spec.volumes[2].local = "results";
  const fs::path manifests = folder.path() / "manifests";
  std::optional<FieldProblem> problem = prepare_folders(job, manifests);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ExitCode::kModel);
  EXPECT_EQ(problem->field, "spec.trainer.model");
  EXPECT_EQ(problem->message,
            "models:m: " + (manifests / "m/m").string() + " does not exist on this machine");
  fs::create_directories(manifests / "m/m");
  problem = prepare_folders(job, manifests);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ExitCode::kData);
  EXPECT_EQ(problem->field, "spec.trainer.data");
  EXPECT_THAT(problem->message, HasSubstr((folder.path() / "d/mrpc/d").string()));
  fs::create_directories(folder.path() / "d/mrpc/d");
  EXPECT_FALSE(fs::exists(manifests / "results"));
  EXPECT_FALSE(prepare_folders(job, manifests));
  EXPECT_TRUE(fs::is_directory(manifests / "results"));
  EXPECT_FALSE(fs::exists(manifests / "results/o")) << "the worker creates it";
  EXPECT_EQ(output_folder(job, manifests), manifests / "results/o");
}

TEST(Launch, ReportsAMissingFileOfTheUser) {
  const testing::TemporaryDirectory folder;
  api::TrainJob job = make_job();
  job.spec.trainer.task.clear();
  job.spec.trainer.data.clear();
  for (const char* action : {"do_train", "do_eval", "do_predict"}) {
    job.spec.trainer.flags[action] = "true";
  }
  job.spec.volumes[1].local = "d";
  job.spec.volumes[2].local = "results";
  fs::create_directories(folder.path() / "m/m");
  fs::create_directories(folder.path() / "d");
  for (const char* flag : {"train_file", "validation_file", "test_file"}) {
    job.spec.trainer.flags[flag] = fmt::format("data:{}.csv", flag);
    const fs::path file = folder.path() / "d" / fmt::format("{}.csv", flag);
    const std::optional<FieldProblem> problem = prepare_folders(job, folder.path());
    ASSERT_TRUE(problem) << flag;
    EXPECT_EQ(problem->code, ExitCode::kData);
    EXPECT_EQ(problem->field, fmt::format("spec.trainer.{}", flag));
    EXPECT_EQ(problem->message,
              fmt::format("data:{}.csv: {} does not exist on this machine", flag, file.string()));
    std::ofstream(file) << "label,sentence\n";
    EXPECT_FALSE(prepare_folders(job, folder.path())) << flag;
  }
}

TEST(Launch, DoesNotLookForFilesThatTheWorkerDoesNotRead) {
  const testing::TemporaryDirectory folder;
  fs::create_directories(folder.path() / "m/m");
  const auto missing = [&](const char* file, const std::string& task,
                           const std::vector<const char*>& actions) {
    api::TrainJob job = make_job();
    job.spec.trainer.task = task;
    job.spec.trainer.data.clear();
    job.spec.volumes[2].local = "results";
    job.spec.trainer.flags[file] = "data:missing.json";
    for (const char* action : actions) job.spec.trainer.flags[action] = "true";
    const std::optional<FieldProblem> problem = prepare_folders(job, folder.path());
    return problem ? problem->field : "";
  };
  EXPECT_EQ(missing("test_file", "", {}), "");
  EXPECT_EQ(missing("test_file", "", {"do_predict"}), "spec.trainer.test_file");
  EXPECT_EQ(missing("validation_file", "", {}), "spec.trainer.validation_file");
  EXPECT_EQ(missing("validation_file", "", {"do_train"}), "");
  EXPECT_EQ(missing("train_file", "", {"do_eval"}), "spec.trainer.train_file") << "its labels";
  EXPECT_EQ(missing("train_file", "squad", {"do_eval"}), "");
  EXPECT_EQ(missing("train_file", "squad", {"do_train"}), "spec.trainer.train_file");
}

TEST(Launch, FindsTheJobThatOwnsTheOutput) {
  const testing::TemporaryDirectory folder;
  api::TrainJob job = make_job();
  job.spec.volumes[2].local = "results";
  const auto owner = [&] { return foreign_owner(job, folder.path()); };
  EXPECT_EQ(owner(), "") << "there is no directory";
  fs::create_directories(folder.path() / "results/o");
  EXPECT_EQ(owner(), "");
  const auto mark = [&](const std::string& text) {
    std::ofstream(folder.path() / "results/o/.tilewright-job.json") << text;
  };
  mark(R"({"job_uid": "u-1", "epoch": 3})");
  EXPECT_EQ(owner(), "") << "this job resumes";
  mark(R"({"job_uid": "u-0", "epoch": 3})");
  EXPECT_EQ(owner(), "u-0");
  for (const char* flag : {"overwrite_output_dir", "do_eval", "do_predict"}) {
    job.spec.trainer.flags[flag] = "true";
    EXPECT_EQ(owner(), "") << flag;
    job.spec.trainer.flags.erase(flag);
  }
  job.spec.trainer.flags["resume_from_checkpoint"] = "output:o/checkpoint-5";
  EXPECT_EQ(owner(), "");
  job.spec.trainer.flags.erase("resume_from_checkpoint");
  for (const char* text : {"", "{", "[]", R"({"job_uid": 3})"}) {
    mark(text);
    EXPECT_EQ(owner(), "") << "the worker says what is wrong with it";
  }
}

TEST(Launch, LetsTheWorkersOverwriteTheOutputOfADiscardedJob) {
  LaunchConfig config;
  config.host = four_cpus();
  config.manifest_folder = "/manifests";
  const auto arguments = [&] {
    return command_for(make_job(), {"mrpc-worker-0", 0}, config).arguments;
  };
  EXPECT_THAT(arguments(), Not(Contains(HasSubstr("overwrite"))));
  config.overwrite_output = true;
  EXPECT_EQ(arguments().back(), "--overwrite_output_dir=true");
}

TEST(Launch, UsesTheWorkerProgramOfTheUser) {
  const testing::TemporaryDirectory folder;
  const fs::path program = folder.path() / "worker";
  std::ofstream(program) << "#!/bin/sh\n";
  auto found = find_worker_program(program);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr(program.string() + " is not an executable file"));
  fs::permissions(program, fs::perms::owner_all);
  found = find_worker_program(program);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, program);
}

}  // namespace
}  // namespace tilewright::local
