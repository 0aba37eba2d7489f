// Runs every benchmark of the built program on a small shape: each must print valid JSON, and refuse
// bad input with one message and its exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/exit_codes.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

class Bench : public ::testing::Test {
 protected:
  Bench() {
    std::ofstream(folder() / "lengths") << "5\n9\n30\n";
    std::ofstream(folder() / "text") << "A cat sat.\nThe dog ran.\n";
  }

  std::filesystem::path folder() const { return temporary_.path(); }
  // Standard output and standard error; expects the exit code.
  std::string output_of(const std::vector<std::string>& words, ExitCode code) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    testing::RunningProgram worker(testing::program("tilewright-worker"), arguments, folder());
    EXPECT_EQ(worker.wait(), static_cast<int>(code)) << worker.output();
    return worker.output();
  }
  nlohmann::json json_of(std::vector<std::string> words) {
    words.emplace_back("--json");
    const std::string output = output_of(words, ExitCode::kOk);
    nlohmann::json json = nlohmann::json::parse(output, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << output;
    EXPECT_FALSE(json.value("cpu", "").empty()) << output;
    return json;
  }
  // A small batch of the smallest model.
  nlohmann::json json_of_workload(const std::string& command,
                                  const std::vector<std::string>& further = {}) {
    std::vector<std::string> words = {command,     "--model", "minilm", "--batch", "2",
                                      "--threads", "1",       "--seq",  "8"};
    words.insert(words.end(), further.begin(), further.end());
    return json_of(words);
  }

  const std::string model_ =
      testing::source_dir() / "tests/golden/guides/data/models/google-bert/bert-base-uncased";

 private:
  testing::TemporaryDirectory temporary_;
};

TEST_F(Bench, PeakPrintsJson) {
  EXPECT_GT(json_of({"peak", "--threads", "1", "--repetitions", "1"})["peak"].size(), 0u);
}

TEST_F(Bench, GemmPrintsJson) {
  const auto json =
      json_of({"gemm", "--shapes", "33x32x8", "--threads", "1", "--repetitions", "1"});
  EXPECT_EQ(json["gemm"].size(), 3u);
}

TEST_F(Bench, AttentionPrintsJson) {
  const auto json = json_of({"attention", "--lengths", "lengths", "--batch", "3", "--heads", "2",
                             "--threads", "1", "--repetitions", "1"});
  EXPECT_EQ(json["attention"][0]["tokens"], 5 + 9 + 30);
}

TEST_F(Bench, LayersPrintJson) {
  const auto json = json_of_workload("layers", {"--repetitions", "1"});
  EXPECT_EQ(json["forward"][0]["kernel"], "linear forward");
}

TEST_F(Bench, StepPrintsJsonForEachTask) {
  EXPECT_EQ(json_of_workload("step", {"--steps", "1", "--task", "cls"})["head"], "classification");
  EXPECT_EQ(json_of_workload("step", {"--steps", "1", "--task", "qa"})["head"],
            "question_answering");
}

TEST_F(Bench, StepShowsThatGradientCheckpointingNeedsLessMemory) {
  const std::vector<std::string> words = {"step", "--model", "minilm", "--batch",   "16", "--seq",
                                          "64",   "--steps", "1",      "--threads", "1"};
  const auto json = json_of(words);
  std::vector<std::string> recomputing = words;
  recomputing.emplace_back("--gradient_checkpointing");
  // 5 of MiniLM's 6 layers keep 6 bytes per token and hidden element in place of 36.
  EXPECT_LT(json_of(recomputing)["peak_memory_bytes"], json["peak_memory_bytes"]);
}

TEST_F(Bench, StepSamplesLengthsFromAFile) {
  const auto json = json_of({"step", "--model", "minilm", "--lengths", "lengths", "--batch", "3",
                             "--steps", "1", "--threads", "1"});
  EXPECT_EQ(json["tokens"], 5 + 9 + 30);
  EXPECT_EQ(json["max_length"], 30);
}

TEST_F(Bench, ProfilePrintsJsonAndWritesAnSvg) {
  const auto json = json_of_workload("profile", {"--steps", "1", "--svg", "profile.svg"});
  EXPECT_EQ(json["kernels"].back()["kernel"], "other");
  EXPECT_THAT(testing::read_text(folder() / "profile.svg"), ::testing::StartsWith("<svg "));
}

TEST_F(Bench, ExactnessPrintsTheInterval) {
  const auto json = json_of_workload("exactness", {"--pairs", "6"});
  EXPECT_LE(json["ratio_low"], json["median_ratio"]);
  EXPECT_LE(json["median_ratio"], json["ratio_high"]);
}

TEST_F(Bench, AdamWPrintsJson) {
  EXPECT_GT(json_of_workload("adamw", {"--repetitions", "1"})["bytes"], 0);
}

TEST_F(Bench, CheckpointPrintsJsonAndLeavesACheckpoint) {
  const auto json = json_of_workload(
      "checkpoint", {"--repetitions", "1", "--output_dir", (folder() / "checkpoints").string()});
  EXPECT_GT(json["bytes"], 0);
  EXPECT_TRUE(std::filesystem::exists(folder() / "checkpoints/checkpoint-2/checksums.json"));
}

TEST_F(Bench, TokenizePrintsJson) {
  const auto json =
      json_of({"tokenize", "--tokenizer_name", model_, "--file", "text", "--repetitions", "1"});
  EXPECT_GT(json["tokens"], 0);
}

TEST_F(Bench, AllreducePrintsJson) {
  const auto json = json_of({"allreduce", "--sizes", "0.01", "--repetitions", "1"});
  EXPECT_EQ(json["ranks"], 2);
}

TEST_F(Bench, StartPrintsJson) {
  const auto json =
      json_of({"start", "--model_name_or_path=" + model_, "--task_name=mrpc", "--threads=1",
               "--data_dir=" + (testing::source_dir() / "examples/data/paraphrase").string()});
  EXPECT_GT(json["seconds"], 0);
}

TEST_F(Bench, RefusesABadLengthsFileWithOneMessage) {
  std::ofstream(folder() / "bad") << "12\n600\n";
  const std::string expected =
      "tilewright-worker: bad:2: found \"600\", expected a number of tokens from 1 to 512\n";
  for (const std::string command : {"step", "attention", "layers", "profile", "exactness"}) {
    EXPECT_EQ(output_of({command, "--lengths", "bad"}, ExitCode::kUsage), expected);
  }
}

TEST_F(Bench, RefusesAnUnknownModelTaskAndShape) {
  EXPECT_THAT(output_of({"step", "--model", "gpt2"}, ExitCode::kUsage), HasSubstr("\"gpt2\""));
  EXPECT_THAT(output_of({"step", "--task", "ner"}, ExitCode::kUsage), HasSubstr("ner"));
  EXPECT_THAT(output_of({"gemm", "--shapes", "1x2"}, ExitCode::kUsage), HasSubstr("ROWSxKxN"));
}

}  // namespace
}  // namespace tilewright
