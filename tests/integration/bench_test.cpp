// Runs every benchmark of the built program on a small shape: each must print valid JSON, and
// refuse bad input with one message and its exit code.
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

TEST_F(Bench, ListsTheDefaultShapesWithoutMeasuring) {
  const auto gemm = nlohmann::json::parse(output_of({"gemm", "--list-shapes"}, ExitCode::kOk));
  EXPECT_EQ(gemm[0], (nlohmann::json{{"rows", 1700}, {"k", 384}, {"n", 384}}));
  const auto attention =
      nlohmann::json::parse(output_of({"attention", "--list-shapes"}, ExitCode::kOk));
  EXPECT_EQ(
      attention[0],
      (nlohmann::json{{"examples", 32}, {"tokens", 32 * 53}, {"heads", 12}, {"head_size", 32}}));
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
  EXPECT_TRUE(std::filesystem::exists(folder() /
                                      "checkpoints/bench-checkpoint/checkpoint-2/checksums.json"));
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

class BenchAsRoot : public Bench {
 protected:
  void SetUp() override {
    if (geteuid() == 0) return;
    constexpr const char* kReason = "network namespaces need root";
    if (testing::prerequisites_required()) FAIL() << kReason;
    GTEST_SKIP() << kReason;
  }
};

TEST_F(BenchAsRoot, ScalingTakesAtLeastTheTimeThatTheLinkNeeds) {
  // Of MiniLM's gradient the matrices of its six layers alone: 384 x 384 for query, key, value and
  // output, 384 x 1536 twice. In a direct all-reduce of two nodes each sends half of the gradient
  // as partial sums and half as sums.
  constexpr double kBytes = 6 * (4 * 384 * 384 + 2 * 384 * 1536) * 4;
  constexpr double kSeconds = kBytes * 8 / 500e6;
  for (const std::string slowdown : {"1", "2"}) {
    const auto json = json_of_workload("scaling", {"--nodes", "2", "--link", "500Mbit",
                                                   "--slowdown", slowdown, "--repetitions", "1"});
    ASSERT_EQ(json["nodes"].size(), 2u) << "one node is always measured";
    const auto& two = json["nodes"][1];
    EXPECT_EQ(two["nodes"], 2);
    EXPECT_EQ(two["virtual_shards"], 4) << "as many as examples";
    EXPECT_GT(two["gradient_bytes"], kBytes);
    EXPECT_GE(two["exchange_seconds"], kSeconds);
    EXPECT_GE(two["step_seconds"], kSeconds);
    EXPECT_GE(two["step_seconds"],
              two["compute_seconds"].get<double>() + two["update_seconds"].get<double>());
    EXPECT_GT(two["communication_cpu_seconds"], 0);
  }
}

TEST_F(BenchAsRoot, ScalingNeedsTheRightToCreateNamespaces) {
  const std::filesystem::path program = testing::program("tilewright-worker");
  testing::RunningProgram worker("/usr/bin/setpriv",
                                 {"--bounding-set=-sys_admin", "--inh-caps=-sys_admin", program,
                                  "bench", "scaling", "--model", "minilm"},
                                 folder());
  EXPECT_EQ(worker.wait(), static_cast<int>(ExitCode::kUnsupported));
  EXPECT_THAT(worker.output(), HasSubstr("run the benchmark as root"));
}

TEST_F(Bench, ScalingRefusesBadNodesAndLinks) {
  EXPECT_EQ(output_of({"scaling", "--nodes", "1,0"}, ExitCode::kUsage),
            "tilewright-worker: --nodes: found 0, expected powers of two from 1 to 64\n");
  EXPECT_THAT(output_of({"scaling", "--nodes", "3"}, ExitCode::kUsage), HasSubstr("found 3"));
  EXPECT_THAT(output_of({"scaling", "--nodes", "two"}, ExitCode::kUsage), HasSubstr("two"));
  EXPECT_EQ(
      output_of({"scaling", "--link", "fast"}, ExitCode::kUsage),
      "tilewright-worker: --link: found \"fast\", expected a rate from 1kbit to 1000Gbit, such "
      "as 25Gbit\n");
  EXPECT_THAT(output_of({"scaling", "--slowdown", "0.5"}, ExitCode::kUsage), HasSubstr("0.5"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // reserve terabytes
TEST_F(Bench, ScalingRefusesGradientsThatDoNotFitIntoTheMemory) {
  testing::RunningProgram worker("/usr/bin/prlimit",
                                 {"--as=4000000000", testing::program("tilewright-worker"), "bench",
                                  "scaling", "--model", "bert-large", "--nodes", "8"},
                                 folder());
  EXPECT_EQ(worker.wait(), static_cast<int>(ExitCode::kMemory));
  EXPECT_THAT(worker.output(), HasSubstr("the gradients of 8 nodes need 1"));  // 1.3 GB each
}
#endif

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
