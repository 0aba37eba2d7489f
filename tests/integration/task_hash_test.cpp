// Question answering and regression give bitwise equal weights for any number of processes and
// after a kill, as classification does in training_test.cpp, and question answering equal
// predictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/training_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::ScopedFault;
using testing::Training;

class QuestionAnsweringTraining : public Training {
 protected:
  QuestionAnsweringTraining() : data_(testing::source_dir() / "examples/data/questions") {}

  // Windows of 64 tokens that overlap by 16: most contexts need several.
  std::vector<std::string> task() const {
    return {"--task_name=squad", "--data_dir=" + data_.string(),    "--max_seq_length=64",
            "--doc_stride=16",   "--per_device_train_batch_size=4", "--do_train=true",
            "--do_eval=true"};
  }
  std::size_t questions(const char* file) const {
    std::size_t count = 0;
    const auto root = nlohmann::json::parse(testing::read_text(data_ / file));
    for (const auto& article : root.at("data")) {
      for (const auto& paragraph : article.at("paragraphs")) count += paragraph.at("qas").size();
    }
    return count;
  }
  // "data: N examples (...), M to evaluate", which counts windows.
  void expect_several_windows_per_question() const {
    std::smatch match;
    const std::regex pattern("data: (\\d+) examples .*, (\\d+) to evaluate");
    ASSERT_TRUE(std::regex_search(output_, match, pattern)) << output_;
    EXPECT_GE(std::stoul(match[1]), 2 * questions("train-v1.1.json"));
    EXPECT_GE(std::stoul(match[2]), 2 * questions("dev-v1.1.json"));
  }
  // The bytes of the predictions, which join the windows of all workers.
  std::string predictions(const std::string& output) const {
    return testing::read_text(folder() / output / "eval_predictions.json") +
           testing::read_text(folder() / output / "eval_nbest_predictions.json");
  }
  nlohmann::json metrics(const std::string& output) const {
    const auto results =
        nlohmann::json::parse(testing::read_text(folder() / output / "eval_results.json"));
    return {results.at("eval_exact_match"), results.at("eval_f1"), results.at("eval_loss")};
  }

  const fs::path data_;
};

TEST_F(QuestionAnsweringTraining, HasTheSameHashForAnyNumberOfProcesses) {
  const std::string reference = train_in_one_process("one", 2, task());
  expect_several_windows_per_question();
  EXPECT_EQ(
      nlohmann::json::parse(testing::read_text(folder() / "one/eval_predictions.json")).size(),
      questions("dev-v1.1.json"));
  for (const int processes : {2, 3}) {
    const std::string output = std::to_string(processes);
    EXPECT_EQ(train_in_processes(output, processes, task()), reference) << processes;
    EXPECT_EQ(predictions(output), predictions("one")) << processes;
    EXPECT_EQ(metrics(output), metrics("one")) << processes;
  }
}

TEST_F(QuestionAnsweringTraining, HasTheSameHashWhenKilledAndResumed) {
  const std::string reference = train_in_one_process("undisturbed", 2, task());
  std::vector<std::string> arguments = flags("killed");
  for (const std::string& flag : task()) arguments.push_back(flag);
  for (const char* point : {"checkpoint.done@3", "evaluate.begin"}) {
    const ScopedFault fault(point);
    EXPECT_EQ(run(arguments), 128 + SIGKILL) << point << "\n" << output_;
    EXPECT_FALSE(fs::exists(folder() / "killed/model.safetensors")) << point;
  }
  EXPECT_EQ(train_in_one_process("killed", 2, task()), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("resuming from"));
  EXPECT_EQ(predictions("killed"), predictions("undisturbed"));
}

class RegressionTraining : public Training {
 protected:
  // The examples of paraphrases in the columns of STS-B. The score falls with the difference in
  // length.
  void SetUp() override {
    Training::SetUp();
    fs::create_directory(folder() / "stsb");
    for (const char* name : {"train.tsv", "dev.tsv"}) {
      std::istringstream in(
          testing::read_text(testing::source_dir() / "examples/data/paraphrase" / name));
      std::ofstream out(folder() / "stsb" / name);
      out << "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\t"
             "score\n";
      std::string line;
      std::getline(in, line);
      for (int i = 0; std::getline(in, line); ++i) {
        std::smatch match;
        const std::regex columns("(\\d)\t[^\t]*\t[^\t]*\t([^\t]*)\t([^\t]*)");
        ASSERT_TRUE(std::regex_match(line, match, columns)) << line;
        const auto difference = std::abs(match.length(2) - match.length(3));
        const double score =
            std::max(0.0, 4.0 * std::stoi(match[1]) + 1.0 - 0.05 * static_cast<double>(difference));
        out << i << "\tnews\tnone\t2015\t" << i << "\tnone\tnone\t" << match[2] << '\t' << match[3]
            << '\t' << score << '\n';
      }
    }
  }
  std::vector<std::string> task() const {
    return {"--task_name=stsb",
            "--data_dir=" + (folder() / "stsb").string(),
            "--per_device_train_batch_size=4",
            "--max_steps=6",
            "--save_steps=2",
            "--max_eval_samples=40",
            "--do_train=true",
            "--do_eval=true"};
  }
};

TEST_F(RegressionTraining, HasTheSameHashForAnyNumberOfProcesses) {
  const std::string reference = train_in_one_process("one", 2, task());
  EXPECT_THAT(output_, ::testing::HasSubstr("pearson"));
  EXPECT_EQ(train_in_processes("two", 2, task()), reference);
  EXPECT_EQ(train_in_processes("three", 3, task()), reference);
  const auto results = [&](const std::string& output) {
    const auto root =
        nlohmann::json::parse(testing::read_text(folder() / output / "eval_results.json"));
    return nlohmann::json{root.at("eval_pearson"), root.at("eval_spearmanr"), root.at("eval_loss")};
  };
  EXPECT_EQ(results("two"), results("one"));
  EXPECT_EQ(results("three"), results("one"));
}

TEST_F(RegressionTraining, HasTheSameHashWhenKilledAndResumed) {
  const std::string reference = train_in_one_process("undisturbed", 2, task());
  std::vector<std::string> arguments = flags("killed");
  for (const std::string& flag : task()) arguments.push_back(flag);
  {
    const ScopedFault fault("checkpoint.done@3");
    EXPECT_EQ(run(arguments), 128 + SIGKILL) << output_;
  }
  EXPECT_EQ(train_in_one_process("killed", 2, task()), reference);
  EXPECT_THAT(output_, ::testing::HasSubstr("checkpoint-4 (step 4 of 6)"));
}

}  // namespace
}  // namespace tilewright
