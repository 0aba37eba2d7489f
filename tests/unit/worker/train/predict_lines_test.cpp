#include "worker/train/predict_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/silent_logger.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tilewright::testing::make_silent_logger;

// The model of tests/golden/data/small_d64 with the vocabulary of tests/golden/train.
class PredictLines : public ::testing::Test {
 protected:
  PredictLines() {
    const fs::path golden = testing::source_dir() / "tests/golden";
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(golden / "data/small_d64" / name, model_ / name);
    }
    fs::copy_file(golden / "train/vocab.txt", model_ / "vocab.txt");
    options_.isas = {runtime::Isa::kRef};
    options_.variable = [](const char*) { return std::string(); };
  }
  std::string predict(const std::string& input, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--model_name_or_path=" + model_.string(), "--max_seq_length=32"});
    const auto log = make_silent_logger();
    return predict_lines(TrainingArguments::parse(flags).or_throw(), options_, input, "in.jsonl",
                         *log);
  }
  std::string refusal(const std::string& input, ExitCode code = ExitCode::kData,
                      const std::vector<std::string>& flags = {}) {
    try {
      predict(input, flags);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), code) << failure.what();
      return failure.what();
    }
    return "";
  }

  void change_config(const char* field, const nlohmann::json& value) {
    auto config = nlohmann::json::parse(testing::read_text(model_ / "config.json"));
    config[field] = value;
    fs::remove(model_ / "config.json");
    std::ofstream(model_ / "config.json") << config.dump();
  }

  // The model of tests/golden/train/question_answering.
  void use_question_answering() {
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(testing::source_dir() / "tests/golden/train/question_answering" / name,
                    model_ / name, fs::copy_options::overwrite_existing);
    }
  }

  testing::TemporaryDirectory directory_;
  fs::path model_ = directory_.path();
  RunOptions options_;
};

// tests/golden/train/write_goldens.py computed them in float64; the logits are of unit scale.
TEST_F(PredictLines, HasTheLabelsAndScoresOfTransformers) {
  std::ifstream file(testing::source_dir() / "tests/golden/train/predictions.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.at("max_seq_length"), 32);
  std::string input;
  for (const auto& one : golden.at("lines")) input += one.at("input").dump() + "\r\n\n";
  for (const char* batch : {"1", "4"}) {
    std::istringstream found(predict(input, {"--per_device_eval_batch_size", batch}));
    for (const auto& one : golden.at("lines")) {
      std::string line;
      ASSERT_TRUE(std::getline(found, line));
      const auto prediction = nlohmann::json::parse(line);
      EXPECT_EQ(prediction.at("label"), one.at("label"));
      EXPECT_NEAR(prediction.at("score").get<double>(), one.at("score").get<double>(), 1e-5);
    }
    std::string rest;
    EXPECT_FALSE(std::getline(found, rest)) << rest;
  }
}

TEST_F(PredictLines, TakesTheOnlyMemberExceptTheLabelAsTheSentence) {
  const std::string expected = predict(R"({"sentence": "a cat"})");
  EXPECT_EQ(predict(R"({"text": "a cat"})"), expected);
  EXPECT_EQ(predict(R"({"text": "a cat", "label": "1"})"), expected);
}

TEST_F(PredictLines, NamesTheLineOfBadInput) {
  const std::string good = "{\"sentence\": \"a cat\"}\n";
  EXPECT_EQ(refusal(good + "{\"sentence\": "),
            "in.jsonl:2: found invalid JSON, expected {\"sentence\": ...} or {\"sentence1\": ..., "
            "\"sentence2\": ...}");
  EXPECT_THAT(refusal("\n[1]"), StartsWith("in.jsonl:2: found array, expected {"));
  EXPECT_THAT(refusal("{\"sentence2\": \"a\"}"),
              StartsWith("in.jsonl:1: found neither sentence nor sentence1, expected {"));
  EXPECT_THAT(refusal(R"({"id": "7", "text": "a", "label": 1})"),
              StartsWith("in.jsonl:1: found \"id\", \"label\", \"text\", expected {"));
  EXPECT_THAT(refusal("{}"), StartsWith("in.jsonl:1: found no members, expected {"));
  EXPECT_EQ(refusal(R"({"text": 7})"), "in.jsonl:1: found number as \"text\", expected a string");
  EXPECT_LT(refusal("{\"" + std::string(100'000, 'n') + "\": 7}").size(), 200U);
  EXPECT_THAT(refusal(R"({"te\u0000xt": 7})"), HasSubstr("found number as \"te"));
  for (const std::string other : {"sentence1", "sentence2"}) {
    EXPECT_THAT(refusal(R"({"sentence": "a cat", ")" + other + R"(": "the cat"})"),
                StartsWith("in.jsonl:1: found both sentence and " + other + ", expected {"));
  }
  EXPECT_EQ(refusal("{\"sentence\": 7}"),
            "in.jsonl:1: found number as \"sentence\", expected a string");
  EXPECT_THAT(refusal("{\"question\": \"who\", \"context\": \"a cat\"}"),
              StartsWith("in.jsonl:1: found a question, expected a sentence"));
  EXPECT_EQ(refusal("{\"sentence\": \"caf\xe9\"}"),
            "in.jsonl:1: byte 18 of the line is not valid UTF-8, expected text in UTF-8")
      << "Latin-1";
  EXPECT_THAT(
      refusal(good.substr(0, good.size() - 1) + std::string(1, '\0') + "{}\n"),
      StartsWith(fmt::format("in.jsonl:1: byte {} of the line is NUL, expected ", good.size())));
  EXPECT_THAT(refusal(good + std::string(kMaxInputLineBytes + 1, 'a')),
              StartsWith("in.jsonl:2: found a line of 1048577 bytes, expected at most 1048576"));
  EXPECT_EQ(predict(" \n\r\n"), "");
}

// The answers are those of run_qa's post-processing for logits in float64; where a context is one
// window, Hugging Face's pipeline chooses the same span.
TEST_F(PredictLines, HasTheAnswersOfTransformers) {
  use_question_answering();
  std::ifstream file(testing::source_dir() / "tests/golden/train/question_answering/answers.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::string input;
  for (const auto& question : golden.at("questions")) input += question.dump() + "\n\n";
  for (const auto& one : golden.at("cases")) {
    std::vector<std::string> flags = {"--per_device_eval_batch_size=3"};
    for (const char* name : {"max_seq_length", "doc_stride", "version_2_with_negative",
                             "null_score_diff_threshold", "n_best_size", "max_answer_length"}) {
      flags.push_back(fmt::format("--{}={}", name, one.at(name).dump()));
    }
    SCOPED_TRACE(one.at("max_seq_length").dump());
    std::istringstream found(predict(input, flags));
    for (const auto& expected : one.at("lines")) {
      std::string line;
      ASSERT_TRUE(std::getline(found, line));
      auto answer = nlohmann::json::parse(line);
      EXPECT_NEAR(answer.at("score").get<double>(), expected.at("score").get<double>(), 1e-4);
      answer["score"] = expected.at("score");
      EXPECT_EQ(answer, expected);
    }
    std::string rest;
    EXPECT_FALSE(std::getline(found, rest)) << rest;
  }
}

// One token of the context, and no pair of best tokens is in it.
TEST_F(PredictLines, GivesNoAnswerIfNoPairOfBestTokensIsOne) {
  use_question_answering();
  const auto answer = nlohmann::json::parse(
      predict(R"({"question": "what is the new red home on the river", "context": "cat"})",
              {"--max_seq_length=64", "--n_best_size=1"}));
  EXPECT_EQ(answer.at("answer"), "");
  EXPECT_EQ(answer.at("score"), 0);
  EXPECT_EQ(answer.at("start"), 0);
  EXPECT_EQ(answer.at("end"), 0);
}

TEST_F(PredictLines, NamesTheLineOfABadQuestion) {
  use_question_answering();
  const std::string good = "{\"question\": \"who\", \"context\": \"a cat\"}\n";
  EXPECT_EQ(refusal(good + "{\"question\": "),
            "in.jsonl:2: found invalid JSON, expected {\"question\": ..., \"context\": ...}");
  EXPECT_EQ(refusal("{\"question\": \"who\"}"),
            "in.jsonl:1: found no context, expected {\"question\": ..., \"context\": ...}");
  EXPECT_THAT(refusal("{\"context\": \"a cat\"}"), StartsWith("in.jsonl:1: found no question, "));
  EXPECT_EQ(refusal("{\"question\": \"who\", \"context\": [1]}"),
            "in.jsonl:1: found array as \"context\", expected a string");
  EXPECT_EQ(refusal("{\"id\": {}, \"question\": \"who\", \"context\": \"a\"}"),
            "in.jsonl:1: found object as \"id\", expected a string or a number");
  const std::string nested = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_EQ(refusal("{\"question\": \"who\", \"context\": \"a\", \"id\": " + nested + "}"),
            "in.jsonl:1: found array as \"id\", expected a string or a number");
  EXPECT_THAT(refusal("{\"sentence\": \"a cat\"}"),
              StartsWith("in.jsonl:1: found a sentence, expected a question"));
  EXPECT_EQ(refusal(good + "{\"question\": \"who\", \"context\": \" \"}"),
            "in.jsonl: question \"line 2\": the context has only white space, expected text");
  EXPECT_EQ(refusal("{\"question\": \"\", \"context\": \"a\"}"),
            "in.jsonl: question \"line 1\": the question is empty, expected text");
  EXPECT_EQ(predict(" \n\r\n"), "");
}

TEST_F(PredictLines, NeedsAModelThatAnswersQuestions) {
  const auto weights = model_ / "model.safetensors";
  use_question_answering();
  fs::copy_file(testing::source_dir() / "tests/golden/data/small_d64/model.safetensors", weights,
                fs::copy_options::overwrite_existing);
  fs::remove(model_ / "config.json");
  auto config = nlohmann::json::parse(
      std::ifstream(testing::source_dir() / "tests/golden/data/small_d64/config.json"));
  config["architectures"] = {"BertForQuestionAnswering"};
  std::ofstream(model_ / "config.json") << config.dump();
  EXPECT_THAT(refusal("{\"question\": \"who\", \"context\": \"a cat\"}", ExitCode::kWeights),
              HasSubstr("the weights lack qa_outputs.weight"));
}

TEST_F(PredictLines, TakesAsManySentencesAsTheTaskOfTheModel) {
  const std::string one = "{\"sentence1\": \"a cat\"}";
  const std::string two = "{\"sentence1\": \"a cat\", \"sentence2\": \"the cat\"}";
  EXPECT_NE(predict(one + "\n" + two), "") << "the task is not known";
  change_config("finetuning_task", "mrpc");
  EXPECT_NE(predict(two), "");
  EXPECT_EQ(refusal(two + "\n" + one),
            "in.jsonl:2: found no sentence2, expected sentence1 and sentence2: the model's task "
            "mrpc takes pairs of sentences");
  EXPECT_THAT(refusal("{\"sentence\": \"a cat\"}"), StartsWith("in.jsonl:1: found no sentence2"));
  change_config("finetuning_task", "SST-2");
  EXPECT_NE(predict(one), "");
  EXPECT_EQ(refusal(two),
            "in.jsonl:1: found sentence2, expected one sentence: the model's task sst2 takes "
            "single sentences");
  EXPECT_NE(predict(two, {"--task_name=rte"}), "") << "the flag has precedence";
}

// A config.json as run_glue.py writes it after a training on integer labels.
TEST_F(PredictLines, NamesLabelsThatAreNumbers) {
  change_config("id2label", {{"0", 10}, {"1", 20}, {"2", 30}});
  const auto prediction = nlohmann::json::parse(predict("{\"sentence\": \"a cat\"}"));
  EXPECT_THAT(prediction.at("label").get<std::string>(), ::testing::AnyOf("10", "20", "30"));
}

TEST_F(PredictLines, NeedsAModelWithOneLabelForEachSentence) {
  change_config("problem_type", "multi_label_classification");
  EXPECT_THAT(refusal("{\"sentence\": \"a cat\"}", ExitCode::kModel),
              HasSubstr("problem_type is \"multi_label_classification\""));
}

TEST_F(PredictLines, NeedsAClassifierWithTheLabelsOfTheConfig) {
  change_config("id2label", {{"0", "no"}, {"1", "yes"}});
  const std::string input = "{\"sentence\": \"a cat\"}";
  EXPECT_THAT(refusal(input, ExitCode::kWeights), HasSubstr("--ignore_mismatched_sizes"));
  EXPECT_THAT(refusal(input, ExitCode::kWeights, {"--ignore_mismatched_sizes"}),
              HasSubstr("the weights lack classifier.weight"))
      << "a random head predicts nothing";
}

TEST_F(PredictLines, NeedsAModelWithAClassifier) {
  fs::copy_file(testing::source_dir() / "tests/golden/data/small_d32/model.safetensors",
                model_ / "model.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal("{\"sentence\": \"a\"}", ExitCode::kWeights), HasSubstr("classifier"));
  fs::remove(model_ / "model.safetensors");
  EXPECT_NE(refusal("{\"sentence\": \"a\"}", ExitCode::kWeights), "");
}

}  // namespace
}  // namespace tilewright::train
