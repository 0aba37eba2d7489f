// The programs of the worker image: the static launcher under the names torchrun, python and bash,
// and the worker beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <regex>

#include "common/base/exit_codes.h"
#include "common/contract/environment.h"
#include "tests/integration/faults.h"
#include "tests/integration/hub_fixture.h"
#include "tests/support/local_ports.h"
#include "tests/support/run_command.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kMissing =
    "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9:/usr/local/lib/libiomp5.so";
constexpr const char* kExistingLibrary = "/usr/lib/x86_64-linux-gnu/libutil.so.1";

// Lays out the programs as docker/collect-root does.
class LaunchCommand : public testing::HubTraining {
 protected:
  LaunchCommand() {
    fs::create_directories(path("usr/bin"));
    fs::create_directory(path("usr/libexec"));
    fs::copy_file(testing::program("tilewright-launcher"), bin("tilewright-worker"));
    fs::create_symlink(testing::program("tilewright-worker"),
                       path("usr/libexec/tilewright-worker"));
    for (const char* name : {"torchrun", "python", "python3", "bash", "sh"}) {
      fs::create_symlink("tilewright-worker", bin(name));
    }
  }

  fs::path bin(const std::string& name) const { return path("usr/bin") / name; }

  int start(const std::string& name, const std::vector<std::string>& arguments) {
    testing::RunningProgram program(bin(name), arguments, folder());
    const int code = program.wait();
    output_ = program.output();
    return code;
  }

  // The message of the first line of the log.
  std::string first_line() const {
    const std::string line = output_.substr(0, output_.find('\n'));
    return std::regex_replace(line, std::regex("^[-0-9T:.]+ info "), "");
  }

  std::string in_folder(const std::string& text) const {
    return std::regex_replace(text, std::regex("/tmp/"), folder().string() + "/");
  }
};

constexpr const char* kArguments =
    "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
    "--per_device_train_batch_size 32 --num_train_epochs 1 --output_dir /tmp/debug_squad/ "
    "--use_ipex --bf16 --no_cuda";

TEST_F(LaunchCommand, PythonTrains) {
  std::vector<std::string> words = testing::split_words(in_folder(kArguments));
  words.insert(words.begin(), "run_qa.py");
  ASSERT_EQ(start("python", words), 0) << output_;
  EXPECT_EQ(first_line(), "python run_qa.py: runs natively as tilewright-worker train");
  EXPECT_TRUE(fs::exists(path("debug_squad/model.safetensors")));
}

// run_qa.py knows one task, so files of the user's own need no flag that names it.
TEST_F(LaunchCommand, PythonTrainsOnQuestionsOfOnesOwn) {
  const std::string questions =
      (testing::source_dir() / "examples/data/questions/train-v1.1.json").string();
  std::vector<std::string> words = testing::split_words(
      "run_qa.py --model_name_or_path distilbert-base-uncased --do_train --max_steps 1 "
      "--output_dir out --train_file");
  words.push_back(questions);
  ASSERT_EQ(start("python", words), 0) << output_;
  EXPECT_EQ(first_line(),
            "python run_qa.py: runs natively as tilewright-worker train --task_name=squad");
  EXPECT_THAT(testing::read_text(path("out/config.json")),
              HasSubstr("DistilBertForQuestionAnswering"));
}

// The command of the guides' second manifest with another program than torchrun. The same flags of
// `tilewright-worker train` give the same weights.
TEST_F(LaunchCommand, BashTrainsIntoADirectoryWithTheTime) {
  const testing::ScopedVariable preload("LD_PRELOAD", kMissing);
  const testing::ScopedVariable level("LOGLEVEL", "INFO");
  const testing::ScopedVariable workers("CCL_WORKER_COUNT", "1");
  const testing::ScopedVariable threads("OMP_NUM_THREADS", "240");
  const testing::ScopedVariable time(env::kLaunchTime, "1764000123");
  const testing::ScopedVariable zone("TZ", "UTC");
  const std::string command = in_folder(
      "cd /workspace/transformers; pip install -r /workspace/requirements.txt; python3 "
      "/workspace/transformers/run_qa.py \\\n  --model_name_or_path distilbert-base-uncased \\\n  "
      "--dataset_name squad \\\n  --do_train \\\n  --do_eval \\\n  --num_train_epochs 1 \\\n  "
      "--output_dir /tmp/output_$(date +%Y%m%d_%H%M%S) \\\n  --bf16;");
  ASSERT_EQ(start("bash", {"-c", command}), 0) << output_;
  EXPECT_EQ(first_line(),
            "python /workspace/transformers/run_qa.py: runs natively as tilewright-worker train; "
            "skipped: pip install -r /workspace/requirements.txt");
  EXPECT_THAT(output_, HasSubstr("cd /workspace/transformers: not possible here"));
  EXPECT_THAT(output_, HasSubstr(std::string("the image does not have ") + kMissing));
  EXPECT_THAT(output_, ContainsRegex("OMP_NUM_THREADS: found 240, but this process may use"));
  EXPECT_THAT(output_, HasSubstr("CCL_WORKER_COUNT: not used, because"));
  EXPECT_THAT(output_, Not(HasSubstr("ld.so")));
  EXPECT_TRUE(fs::exists(path("output_20251124_160203/model.safetensors")));
  const std::string digest_of_bash = digest();
  ASSERT_EQ(run("--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train "
                "--do_eval --num_train_epochs 1 --output_dir /tmp/direct --bf16"),
            0)
      << output_;
  EXPECT_EQ(digest(), digest_of_bash);
}

// torchrun without a rendezvous starts its processes as `tilewright-worker agent` does.
TEST_F(LaunchCommand, TorchrunStartsTheProcessesOfThisHost) {
  const std::string arguments = in_folder(kArguments) + " --nominal_workers 2";
  std::vector<std::string> words = testing::split_words(arguments);
  words.insert(words.begin(), {"--standalone", "--nproc-per-node=2", "/workspace/run_qa.py"});
  ASSERT_EQ(start("torchrun", words), 0) << output_;
  EXPECT_EQ(first_line(),
            "torchrun /workspace/run_qa.py: runs natively as tilewright-worker train");
  EXPECT_THAT(output_, HasSubstr("[worker 0.1] "));
  const std::string digest_of_two = digest();
  fs::remove_all(path("debug_squad"));
  ASSERT_EQ(run(testing::split_words(arguments)), 0) << output_;
  EXPECT_EQ(digest(), digest_of_two);
}

// As users write it who replace the name of the program only.
TEST_F(LaunchCommand, TheProgramStandsInPlaceOfPythonAndOfTorchrun) {
  std::vector<std::string> words = testing::split_words(in_folder(kArguments));
  words.insert(words.begin(), "examples/run_qa.py");
  ASSERT_EQ(start("tilewright-worker", words), 0) << output_;
  words.insert(words.begin(), {"agent", "--nproc-per-node=1"});
  words.push_back("--overwrite_output_dir");
  ASSERT_EQ(start("tilewright-worker", words), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("[worker 0.0] "));
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"train.py"}, {"agent", "--nproc-per-node=2", "train.py"}}) {
    EXPECT_EQ(start("tilewright-worker", other), static_cast<int>(ExitCode::kCommandNotFound));
    EXPECT_EQ(std::ranges::count(output_, '\n'), 1) << output_;
  }
}

TEST_F(LaunchCommand, OtherCommandsAreNotFound) {
  EXPECT_EQ(start("bash", {"-c", "python run_qa.py | tee log"}),
            static_cast<int>(ExitCode::kCommandNotFound));
  EXPECT_THAT(output_, HasSubstr("bash -c: found \"|\", a pipe, expected only words"));
  EXPECT_EQ(start("python", {"train.py"}), static_cast<int>(ExitCode::kCommandNotFound));
  EXPECT_EQ(std::ranges::count(output_, '\n'), 1) << output_;
}

TEST_F(LaunchCommand, LogLevelIsThatOfTheVariable) {
  const testing::ScopedVariable level("LOGLEVEL", "WARNING");
  std::vector<std::string> words = testing::split_words(in_folder(kArguments));
  words.insert(words.begin(), "run_qa.py");
  ASSERT_EQ(start("python3", words), 0) << output_;
  EXPECT_THAT(output_, Not(HasSubstr(" info ")));
  words.push_back("--log_level=info");
  words.push_back("--overwrite_output_dir");
  ASSERT_EQ(start("python3", words), 0) << output_;
  EXPECT_THAT(output_, HasSubstr(" info trained: "));
}

// torchrun's agent takes its level from the variable, too.
TEST_F(LaunchCommand, LogLevelOfTheAgentIsThatOfTheVariable) {
  const auto agent = [&](const std::string& level, const std::vector<std::string>& flags) {
    const testing::ScopedVariable variable("LOGLEVEL", level);
    std::vector<std::string> words = {"agent", "--monitor-interval=5"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "--version"});
    EXPECT_EQ(start("tilewright-worker", words), 0) << output_;
    return output_;
  };
  EXPECT_THAT(agent("INFO", {}), HasSubstr("info agent: --monitor-interval has no effect"));
  EXPECT_THAT(agent("WARNING", {}), Not(HasSubstr(" info ")));
  EXPECT_THAT(agent("WARNING", {"--log-level=info"}), HasSubstr("info agent: --monitor-interval"));
  EXPECT_EQ(start("tilewright-worker", {"agent", "--log-level=INFO", "--", "--version"}),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("--log-level: found INFO, expected one of trace, debug, info"));
}

// The ranks start in different seconds; all write to the directory of rank 0.
TEST_F(LaunchCommand, RanksUseTheDirectoryOfRank0) {
  const testing::ReservedPort reserved;
  const testing::ScopedVariable temporary("TMPDIR", folder().string());  // of the job's secret
  const testing::ScopedVariable world("WORLD_SIZE", "2");
  const testing::ScopedVariable local_world("LOCAL_WORLD_SIZE", "2");
  const testing::ScopedVariable address("MASTER_ADDR", "127.0.0.1");
  const testing::ScopedVariable port("MASTER_PORT", std::to_string(reserved.number()));
  std::vector<std::string> words = {"-c",
                                    in_folder("python3 run_qa.py --model_name_or_path "
                                              "distilbert-base-uncased --dataset_name squad "
                                              "--do_train --num_train_epochs 1 --output_dir "
                                              "/tmp/output_$(date -u +%Y%m%d_%H%M%S) --bf16")};
  std::vector<std::unique_ptr<testing::RunningProgram>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = std::to_string(rank);
    const testing::ScopedVariable time(env::kLaunchTime, std::to_string(1764000123 + rank));
    const testing::ScopedVariable global("RANK", text), local("LOCAL_RANK", text);
    ranks.push_back(std::make_unique<testing::RunningProgram>(bin("bash"), words, folder()));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->wait(), 0) << rank->output();
  EXPECT_TRUE(fs::exists(path("output_20251124_160203/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("output_20251124_160204")));
}

// Two processes of an agent die in the third step: as a rule both at once, so that they resume from
// a checkpoint; but the second may notice the death of the first before its own third step, and
// then one dies in the next membership epoch. The agent starts them again, later, and they use the
// directory of their first start.
TEST_F(LaunchCommand, RestartedProcessesUseTheDirectoryOfTheFirstStart) {
  const testing::ScopedFault fault(testing::fault_once("step.begin@2", path("first")) + ";" +
                                   testing::fault_once("step.begin@2", path("second")));
  std::vector<std::string> words = {"agent", "--nproc_per_node=2", "--", "train"};
  for (const std::string& word : testing::split_words(
           in_folder("--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train "
                     "--per_device_train_batch_size 2 --num_train_epochs 2 --nominal_workers 2 "
                     "--save_steps 1"))) {
    words.push_back(word);
  }
  words.push_back("--output_dir=" + path("out_$(date +%s)").string());
  ASSERT_EQ(start("tilewright-worker", words), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("restart 2 of"));
  int directories = 0;
  for (const auto& entry : fs::directory_iterator(folder())) {
    directories += entry.path().filename().string().starts_with("out_") ? 1 : 0;
  }
  EXPECT_EQ(directories, 1);
}

class Preload : public LaunchCommand {
 protected:
  testing::CommandResult version_with(const fs::path& program, const std::string& preload,
                                      const std::string& more = "") const {
    ChildCommand command;
    command.program = program;
    command.arguments = {"--version"};
    command.environment = {"LD_PRELOAD=" + preload};
    if (!more.empty()) command.environment.push_back(more);
    return testing::run_command(command);
  }
};

TEST_F(Preload, OfMissingLibrariesMakesNoErrorOfTheLoader) {
  const auto direct = version_with(testing::program("tilewright-worker"), kMissing);
  EXPECT_THAT(direct.output, HasSubstr("ld.so"));
  const auto launched = version_with(bin("tilewright-worker"), kMissing);
  EXPECT_EQ(launched.exit_code, 0);
  EXPECT_THAT(launched.output,
              AllOf(::testing::StartsWith("tilewright-worker "), Not(HasSubstr("ld.so"))));
}

TEST_F(Preload, OfExistingLibrariesRemains) {
  ASSERT_TRUE(fs::exists(kExistingLibrary));
  const std::string both = std::string("/missing/libtcmalloc.so ") + kExistingLibrary;
  const auto launched = version_with(bin("python"), both, "LD_TRACE_LOADED_OBJECTS=1");
  EXPECT_THAT(launched.output, AllOf(HasSubstr(kExistingLibrary), Not(HasSubstr("missing"))));
}

}  // namespace
}  // namespace tilewright
