// Trainings at the edges: batches of one, data sets of one example, sequences of 1 to 512 tokens, a
// context of 10,000 words, evaluations and predictions alone, prepared Arrow files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Edges : public testing::HubTraining {
 protected:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(path(name).parent_path());
    std::ofstream(path(name)) << text;
  }
  // Rows of a CSV file with the columns sentence1 and label.
  static std::string csv(const std::vector<std::string>& sentences) {
    std::string text = "sentence1,label\n";
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      text += sentences[i] + (i % 2 == 0 ? ",no\n" : ",yes\n");
    }
    return text;
  }
  static std::string words(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += i == 0 ? "a" : " a";
    return text;
  }
};

constexpr const char* kTrain =
    "--model_name_or_path bert-base-cased --do_train --do_eval --num_train_epochs 1 ";

TEST_F(Edges, BatchesOfOneHaveTheHashOfABatchOfFour) {
  const std::string squad =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--max_train_samples 8 --num_train_epochs 1 --virtual_shards 4 ";
  ASSERT_EQ(run(squad + "--per_device_train_batch_size 4 --output_dir /tmp/four"), 0) << output_;
  const std::string four = digest();
  ASSERT_EQ(run(squad + "--per_device_train_batch_size 1 --gradient_accumulation_steps 4 "
                        "--per_device_eval_batch_size 1 --output_dir /tmp/one"),
            0)
      << output_;
  EXPECT_EQ(digest(), four);
  EXPECT_EQ(json("one/eval_predictions.json"), json("four/eval_predictions.json"));
  ASSERT_EQ(
      run(squad + "--per_device_train_batch_size 1 --virtual_shards 1 --output_dir /tmp/steps"), 0)
      << output_;
  EXPECT_EQ(json("steps/trainer_state.json").at("global_step"), 8);
}

TEST_F(Edges, OneExampleIsADataSet) {
  write("data/train.tsv",
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tHe said so.\tSo he said.\n");
  fs::copy_file(path("data/train.tsv"), path("data/dev.tsv"));
  write("data/test.tsv",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tHe said so.\tSo he said.\n");
  ASSERT_EQ(run(std::string(kTrain) +
                "--task_name mrpc --do_predict --data_dir /tmp/data --output_dir /tmp/out"),
            0)
      << output_;
  const nlohmann::json results = json("out/all_results.json");
  EXPECT_EQ(results.at("train_samples"), 1);
  EXPECT_EQ(results.at("eval_samples"), 1);
  EXPECT_EQ(json("out/trainer_state.json").at("global_step"), 1);
  EXPECT_THAT(testing::read_text(path("out/predict_results_mrpc.txt")),
              ::testing::MatchesRegex("index\tprediction\n0\t(not_)?equivalent\n"));
}

// [CLS] a ... a [SEP] of 3 to 512 tokens, and longer ones, which are cut to 512.
TEST_F(Edges, SequencesHaveUpToAsManyTokensAsTheModelHasPositions) {
  write("train.csv", csv({"a", words(2), words(61), words(62), words(63), words(254), words(509),
                          words(510), words(511), words(3000)}));
  const std::string files =
      "--train_file /tmp/train.csv --validation_file /tmp/train.csv --per_device_train_batch_size "
      "2 ";
  ASSERT_EQ(run(kTrain + files + "--max_seq_length 512 --output_dir /tmp/whole"), 0) << output_;
  EXPECT_EQ(json("whole/trainer_state.json").at("global_step"), 5);
  ASSERT_EQ(run(kTrain + files + "--max_seq_length 4 --output_dir /tmp/short"), 0) << output_;
  EXPECT_EQ(run(kTrain + files + "--max_seq_length 513 --output_dir /tmp/long"),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("--max_seq_length=513: expected at most the 512 positions of the "
                                 "model in "));
  EXPECT_FALSE(fs::exists(path("long")));
}

TEST_F(Edges, AContextOfTenThousandWordsIsReadInWindows) {
  const std::string context = words(9'999) + " Zebra";
  const std::string file =
      R"({"data": [{"paragraphs": [{"context": ")" + context +
      R"(", "qas": [{"id": "q", "question": "Which word is last?", "answers":)" +
      R"( [{"text": "Zebra", "answer_start": )" + std::to_string(context.size() - 5) + "}]}]}]}]}";
  write("squad/train-v1.1.json", file);
  write("squad/dev-v1.1.json", file);
  ASSERT_EQ(run("--model_name_or_path distilbert-base-uncased --task_name squad --do_train "
                "--do_eval --num_train_epochs 1 --data_dir /tmp/squad --output_dir /tmp/out"),
            0)
      << output_;
  const nlohmann::json answers = json("out/eval_predictions.json");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(context, HasSubstr(answers.at("q").get<std::string>()));
  // At least one window for each 256 words: windows of 384 tokens share 128.
  EXPECT_GE(json("out/all_results.json").at("train_samples"), 10'000 / 384);
}

TEST_F(Edges, ASavedModelNamesItsTask) {
  ASSERT_EQ(run(std::string(kTrain) + "--task_name mrpc --output_dir /tmp/trained"), 0) << output_;
  EXPECT_EQ(json("trained/config.json").at("finetuning_task"), "mrpc");
  const nlohmann::json trained = json("trained/all_results.json");
  ASSERT_EQ(run("--model_name_or_path trained --do_eval --output_dir /tmp/evaluated"), 0)
      << output_;
  const nlohmann::json evaluated = json("evaluated/all_results.json");
  for (const char* name : {"eval_accuracy", "eval_f1", "eval_loss"}) {
    EXPECT_EQ(evaluated.at(name), trained.at(name)) << name;
  }
  ASSERT_EQ(run("--model_name_or_path trained --do_predict --output_dir /tmp/predicted"), 0)
      << output_;
  EXPECT_TRUE(fs::exists(path("predicted/predict_results_mrpc.txt")));
  EXPECT_FALSE(fs::exists(path("predicted/eval_results.json")));
  EXPECT_EQ(run("--model_name_or_path bert-base-cased --do_eval --output_dir /tmp/none"),
            static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(output_, HasSubstr("--task_name is missing"));
}

// Files that pyarrow wrote in the format of the datasets library; they have the rows of the hub's.
TEST_F(Edges, PreparedArrowFilesAreReadWithoutNetwork) {
  const std::string flags =
      "--model_name_or_path distilbert-base-uncased --dataset_name squad --do_train --do_eval "
      "--num_train_epochs 1 --output_dir ";
  ASSERT_EQ(run(flags + "/tmp/parquet"), 0) << output_;
  const std::string reference = digest();
  const fs::path prepared = path("cache/datasets/squad/plain_text/0.0.0/c11c");
  fs::create_directories(prepared);
  for (const char* split : {"train", "validation"}) {
    fs::copy_file(
        testing::source_dir() / "tests/golden/guides/arrow" / fmt::format("squad-{}.arrow", split),
        prepared / fmt::format("squad-{}.arrow", split));
  }
  std::ofstream(prepared / "dataset_info.json") << R"({"config_name": "plain_text", "splits": {
              "train": {"name": "train", "num_examples": 24},
              "validation": {"name": "validation", "num_examples": 8}}})";
  fs::remove_all(path("cache/hub/datasets--squad"));
  hub_.reset();
  const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
  ASSERT_EQ(run(flags + "/tmp/arrow"), 0) << output_;
  EXPECT_EQ(digest(), reference);
  EXPECT_EQ(json("arrow/eval_predictions.json"), json("parquet/eval_predictions.json"));
}

}  // namespace
}  // namespace tilewright
