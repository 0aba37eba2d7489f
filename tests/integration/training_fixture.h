// Trainings of MiniLM's first layers with the built programs, whose weights a test compares by
// their SHA-256.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/integration/faults.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"
#include "tests/support/two_layers.h"

namespace tilewright::testing {

// The TrainJob of write_manifest().
struct ManifestOptions {
  std::string name = "hash";
  int replicas = 2;
  int min_replicas = 1;
  int max_restarts = 3;
  int batch_size = 4;  // per worker
  int max_steps = 12;
  int save_steps = 4;
  std::string trainer_lines = {};  // more lines of spec.trainer, indented by four spaces
};

class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(missing_model(), "");
    // The examples' end-to-end test and the reports train the whole model.
    write_two_layers(model(), std::filesystem::copy_options::create_symlinks);
  }
  std::filesystem::path model() const { return folder() / "two-layers"; }

  // Flags for twelve steps of eight examples with dropout and a checkpoint every four steps.
  std::vector<std::string> flags(const std::string& output) const {
    return {"train",
            "--task_name=mrpc",
            "--model_name_or_path=" + model().string(),
            "--data_dir=" + (source_dir() / "examples/data/paraphrase").string(),
            "--output_dir=" + (folder() / output).string(),
            "--per_device_train_batch_size=4",
            "--nominal_workers=2",
            "--max_workers=3",
            "--learning_rate=1e-4",
            "--max_steps=12",
            "--save_steps=4",
            "--do_eval=false"};
  }
  const std::filesystem::path& folder() const { return temporary_.path(); }

  int run(const std::vector<std::string>& arguments, const char* program = "tilewright-worker") {
    RunningProgram running(testing::program(program), arguments, folder());
    const int code = running.wait();
    output_ = running.output();
    return code;
  }
  std::string once(const std::string& fault, const std::string& file = "once") const {
    return fault_once(fault, folder() / file);
  }
  // The SHA-256 that the run printed: the worker as "output: SHA-256 ...", `up` without the colon.
  std::string digest() const {
    std::smatch match;
    const std::regex pattern("output:? +SHA-256 ([0-9a-f]{64})");
    if (!std::regex_search(output_, match, pattern)) ADD_FAILURE() << output_;
    return match.empty() ? "" : match[1].str();
  }
  std::string train_in_one_process(const std::string& output, int threads,
                                   const std::vector<std::string>& further = {}) {
    std::vector<std::string> arguments = flags(output);
    arguments.insert(arguments.end(), further.begin(), further.end());
    arguments.push_back("--threads=" + std::to_string(threads));
    EXPECT_EQ(run(arguments), 0) << output_;
    return digest();
  }
  std::string train_in_processes(const std::string& output, int processes,
                                 const std::vector<std::string>& further = {}) {
    std::vector<std::string> arguments = {"agent", "--nproc_per_node", std::to_string(processes),
                                          "--"};
    for (const std::string& flag : flags(output)) arguments.push_back(flag);
    arguments.insert(arguments.end(), further.begin(), further.end());
    arguments.push_back("--threads=1");
    EXPECT_EQ(run(arguments), 0) << output_;
    return digest();
  }

  // Writes job.yaml: by default the training of flags() under `tilewright up`, with the output up/.
  void write_manifest(const ManifestOptions& options = {}) const {
    std::ofstream(folder() / "job.yaml") << fmt::format(
        R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {{name: {}}}
spec:
  elasticPolicy: {{minReplicas: {}, maxReplicas: 3, maxRestarts: {}}}
  trainer:
    task: mrpc
    model: models:.
    data: data:.
    output: output:up
    per_device_train_batch_size: {}
    learning_rate: 1e-4
    max_steps: {}
    save_steps: {}
    do_eval: false
{}
  worker:
    replicas: {}
    image: tilewright-worker
  volumes:
    - {{name: models, local: {}}}
    - {{name: data, local: {}}}
    - {{name: output, local: .}}
)",
        options.name, options.min_replicas, options.max_restarts, options.batch_size,
        options.max_steps, options.save_steps, options.trainer_lines, options.replicas,
        model().string(), (source_dir() / "examples/data/paraphrase").string());
  }

  TemporaryDirectory temporary_;
  std::string output_;
};

}  // namespace tilewright::testing
