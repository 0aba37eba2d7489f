// Real trainings of the real MiniLM by the real programs: whatever the number of processes and
// threads, and whatever dies on the way, the weights have the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "common/base/exit_codes.h"
#include "tests/support/paths.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::RunningProgram;

// A fault for the processes started while it lives.
class Fault {
 public:
  explicit Fault(const std::string& text) { setenv("TILEWRIGHT_FAULT", text.c_str(), 1); }
  ~Fault() { unsetenv("TILEWRIGHT_FAULT"); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
};

class Training : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(testing::missing_model(), ""); }

  // Twelve steps of 32 examples with dropout on, a checkpoint every four.
  std::vector<std::string> flags(const std::string& output) const {
    return {"train",
            "--task_name=mrpc",
            "--model_name_or_path=" + testing::model_dir().string(),
            "--data_dir=" + (testing::source_dir() / "examples/data/paraphrase").string(),
            "--output_dir=" + (folder() / output).string(),
            "--per_device_train_batch_size=16",
            "--nominal_workers=2",
            "--max_workers=3",
            "--learning_rate=1e-4",
            "--max_steps=12",
            "--save_steps=4",
            "--do_eval=false"};
  }
  const fs::path& folder() const { return temporary_.path(); }

  int run(const std::vector<std::string>& arguments, const char* program = "tilewright-worker") {
    RunningProgram running(testing::program(program), arguments, folder());
    const int code = running.wait();
    said_ = running.output();
    return code;
  }
  // The digest that the run said it wrote.
  std::string digest() const {
    std::smatch match;
    const std::regex pattern("SHA-256 of model.safetensors ([0-9a-f]{64})");
    if (!std::regex_search(said_, match, pattern)) ADD_FAILURE() << said_;
    return match.empty() ? "" : match[1].str();
  }
  std::string one_process(const std::string& output, int threads,
                          const std::vector<std::string>& further = {}) {
    std::vector<std::string> arguments = flags(output);
    arguments.insert(arguments.end(), further.begin(), further.end());
    arguments.push_back("--threads=" + std::to_string(threads));
    EXPECT_EQ(run(arguments), 0) << said_;
    return digest();
  }
  std::string several_processes(const std::string& output, int processes,
                                const std::vector<std::string>& further = {}) {
    std::vector<std::string> arguments = {"agent", "--nproc_per_node", std::to_string(processes),
                                          "--"};
    for (const std::string& flag : flags(output)) arguments.push_back(flag);
    arguments.insert(arguments.end(), further.begin(), further.end());
    arguments.push_back("--threads=1");
    EXPECT_EQ(run(arguments), 0) << said_;
    return digest();
  }

  testing::TemporaryDirectory temporary_;
  std::string said_;
};

TEST_F(Training, HasOneHashForAnyNumberOfThreadsAndProcesses) {
  const std::string reference = one_process("one", 1);
  EXPECT_EQ(one_process("two-threads", 2), reference);
  EXPECT_EQ(several_processes("two", 2), reference);
  EXPECT_EQ(several_processes("three", 3), reference);
}

// Pods that were made before maxReplicas was raised meet in such worlds. Alone, a step is one pass
// with one sum; of three, each holds two.
TEST_F(Training, HasTheSameHashInALargerWorldThanItsProcessesWereToldOf) {
  const std::vector<std::string> told = {"--nominal_workers=1", "--max_workers=1",
                                         "--per_device_train_batch_size=32"};
  const std::string reference = one_process("one", 1, told);
  EXPECT_EQ(several_processes("two", 2, told), reference);
  EXPECT_EQ(several_processes("three", 3, told), reference);
}

// More processes than shards have nothing to do, and no sum.
TEST_F(Training, RefusesAWorldThatHasFewerShardsThanProcesses) {
  std::vector<std::string> arguments = {"agent", "--nproc_per_node=3", "--max_restarts=0", "--"};
  for (const std::string& flag : flags("out")) arguments.push_back(flag);
  arguments.insert(arguments.end(),
                   {"--nominal_workers=1", "--max_workers=1", "--threads=1", "--virtual_shards=2"});
  EXPECT_EQ(run(arguments), static_cast<int>(ExitCode::kUsage)) << said_;
  EXPECT_THAT(said_, ::testing::HasSubstr("3 processes, expected at most 2"));
}

TEST_F(Training, HasTheSameHashWhenKilledAndResumed) {
  const std::string reference = one_process("undisturbed", 2);
  {
    const Fault fault("step.after_update@9");
    EXPECT_EQ(run(flags("killed")), 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(folder() / "killed/model.safetensors"));
  EXPECT_EQ(one_process("killed", 2), reference);
  EXPECT_THAT(said_, ::testing::HasSubstr("checkpoint-8 (step 8 of 12)"));
}

// SIGTERM, as an eviction sends it: a checkpoint at the step, no step trained twice.
TEST_F(Training, HasTheSameHashWhenToldToStopAndResumed) {
  const std::string reference = one_process("undisturbed", 2);
  {
    RunningProgram running(testing::program("tilewright-worker"), flags("stopped"), folder());
    ASSERT_TRUE(running.say("step 1/12"));
    running.send(SIGTERM);
    EXPECT_EQ(running.wait(), static_cast<int>(ExitCode::kTerminated)) << running.output();
    EXPECT_THAT(running.output(), ::testing::HasSubstr("stopped by a signal"));
  }
  EXPECT_EQ(one_process("stopped", 2), reference);
  EXPECT_THAT(said_, ::testing::HasSubstr("resuming from"));
}

TEST_F(Training, HasTheSameHashWhenACheckpointOrTheOutputIsCutOff) {
  const std::string reference = one_process("undisturbed", 2);
  for (const char* point : {"checkpoint.before_rename@7", "output.before_rename"}) {
    const std::string output = std::string("cut-") + point;
    {
      const Fault fault(point);
      EXPECT_EQ(run(flags(output)), 128 + SIGKILL) << point;
    }
    EXPECT_FALSE(fs::exists(folder() / output / "checkpoint-8/checksums.json") &&
                 std::string(point).starts_with("checkpoint"));
    EXPECT_FALSE(fs::exists(folder() / output / "model.safetensors"));
    EXPECT_EQ(one_process(output, 2), reference) << point;
    for (const auto& entry : fs::directory_iterator(folder() / output)) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos)
          << entry.path() << " was left behind";
    }
  }
}

TEST_F(Training, HasTheSameHashUnderUpWhenAWorkerIsKilled) {
  const std::string reference = one_process("undisturbed", 1);
  std::ofstream(folder() / "job.yaml") << R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: hash}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 3, maxRestarts: 3}
  trainer:
    task: mrpc
    model: models:.
    data: data:.
    output: output:up
    per_device_train_batch_size: 16
    learning_rate: 1e-4
    max_steps: 12
    save_steps: 4
    do_eval: false
  worker:
    replicas: 2
    image: tilewright-worker
  volumes:
    - {name: models, local: )" << testing::model_dir().string()
                                       << R"(}
    - {name: data, local: )" << (testing::source_dir() / "examples/data/paraphrase").string()
                                       << R"(}
    - {name: output, local: .}
)";
  for (const char* point :
       {"step.after_backward@6,worker=1", "reduce_scatter.after_send@6,worker=0",
        "checkpoint.begin@7,worker=0"}) {
    fs::remove_all(folder() / "up");
    fs::remove_all(folder() / ".tilewright");
    const Fault fault(point);
    EXPECT_EQ(run({"up", "job.yaml"}, "tilewright"), 0) << point << "\n" << said_;
    EXPECT_EQ(digest(), reference) << point;
    EXPECT_THAT(said_, ::testing::HasSubstr("SIGKILL")) << point;
  }
}

TEST_F(Training, LeavesAFolderThatHoldsWhatTransformersLoads) {
  std::vector<std::string> arguments = flags("out");
  arguments.back() = "--do_eval=true";
  ASSERT_EQ(run(arguments), 0) << said_;
  for (const char* file :
       {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "all_results.json",
        "train_results.json", "eval_results.json", "trainer_state.json"}) {
    EXPECT_TRUE(fs::exists(folder() / "out" / file)) << file;
  }
  std::ifstream in(folder() / "out/all_results.json");
  const auto results = nlohmann::json::parse(in);
  EXPECT_GT(results.at("eval_accuracy").get<double>(), 0.0);
  EXPECT_LE(results.at("eval_accuracy").get<double>(), 1.0);
  EXPECT_GT(results.at("train_loss").get<double>(), 0.0);
}

TEST_F(Training, SaysWhatIsWrongInOneSentenceAndLeavesNothing) {
  struct Bad {
    const char* flag;
    ExitCode code;
    const char* said;
  };
  const Bad bads[] = {
      {"--model_name_or_path=nowhere", ExitCode::kModel, "nowhere"},
      {"--data_dir=nowhere", ExitCode::kData, "nowhere"},
      {"--learning_rat=1", ExitCode::kUsage, "learning_rate"},
      {"--virtual_shards=64", ExitCode::kUsage, "64"},
      {"--virtual_shards=6", ExitCode::kUsage, "6"},
      {"--output_dir=/proc/tilewright", ExitCode::kOutput, "/proc"},
      {"--max_seq_length=1024", ExitCode::kUsage, "512 positions"},
  };
  for (const Bad& bad : bads) {
    std::vector<std::string> arguments = flags("bad");
    arguments.emplace_back(bad.flag);
    EXPECT_EQ(run(arguments), static_cast<int>(bad.code)) << bad.flag << "\n" << said_;
    EXPECT_THAT(said_, ::testing::HasSubstr(bad.said));
    EXPECT_FALSE(fs::exists(folder() / "bad")) << bad.flag;
  }
}

// Padding changes what is computed, not what comes out of it.
TEST_F(Training, PadsOnlyWhenToldToAndLearnsTheSame) {
  struct Seen {
    std::int64_t rows = 0, tokens = 0;
    double train_loss = 0, eval_loss = 0, flos = 0;
  };
  const auto train = [&](const std::string& output, bool padded) {
    std::vector<std::string> arguments = flags(output);
    arguments.back() = "--do_eval=true";
    arguments.insert(arguments.end(), {"--max_steps=3", "--max_seq_length=36",
                                       "--max_train_samples=96", "--max_eval_samples=40"});
    if (padded) arguments.emplace_back("--pad_to_max_length");
    EXPECT_EQ(run(arguments), 0) << said_;
    Seen seen;
    std::smatch match;
    const std::regex pattern("the layers computed (\\d+) rows for (\\d+) tokens");
    if (!std::regex_search(said_, match, pattern)) {
      ADD_FAILURE() << said_;
      return seen;
    }
    seen.rows = std::stoll(match[1]);
    seen.tokens = std::stoll(match[2]);
    std::ifstream in(folder() / output / "all_results.json");
    const auto results = nlohmann::json::parse(in);
    seen.train_loss = results.at("train_loss").get<double>();
    seen.eval_loss = results.at("eval_loss").get<double>();
    seen.flos = results.at("total_flos").get<double>();
    return seen;
  };
  const Seen packed = train("packed", false);
  const Seen padded = train("padded", true);
  EXPECT_EQ(packed.rows, packed.tokens);
  EXPECT_EQ(padded.tokens, packed.tokens);
  EXPECT_EQ(padded.rows, 3 * 32 * 36);
  EXPECT_GT(padded.rows, padded.tokens);
  EXPECT_EQ(padded.flos, packed.flos);
  // The first loss has the same bits; then weights differ by roundings of their gradients, which
  // AdamW may carry to one bf16 rounding of a weight (2^-9) for each of two updates.
  EXPECT_NEAR(padded.train_loss, packed.train_loss, 2 * 0x1p-9 * packed.train_loss);
  EXPECT_NEAR(padded.eval_loss, packed.eval_loss, 3 * 0x1p-9 * packed.eval_loss);
}

TEST_F(Training, RefusesAnotherJobsOutputFolder) {
  one_process("mine", 2);
  std::vector<std::string> arguments = flags("mine");
  arguments.emplace_back("--seed=7");
  EXPECT_EQ(run(arguments), static_cast<int>(ExitCode::kOutput));
  EXPECT_THAT(said_, ::testing::HasSubstr("overwrite_output_dir"));
}

}  // namespace
}  // namespace tilewright
