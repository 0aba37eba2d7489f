// Reads, refuses and writes config.json.
#include "worker/checkpoint/model_config.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/unit/worker/checkpoint/checkpoint_testing.h"

namespace tilewright::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelConfigTest : public ::testing::Test {
 protected:
  ModelConfig read(const nlohmann::json& json) {
    write_file(path_, json.dump());
    return read_model_config(directory_.path());
  }
  void expect_refused(const nlohmann::json& change, const std::string& part) {
    nlohmann::json json = minimal_;
    json.update(change);
    expect_failure([&] { read(json); }, ExitCode::kModel,
                   AllOf(HasSubstr(path_.string()), HasSubstr(part)));
  }

  tilewright::testing::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "config.json";
  nlohmann::json minimal_ = {
      {"model_type", "bert"},           {"vocab_size", 30522},       {"hidden_size", 384},
      {"num_hidden_layers", 6},         {"num_attention_heads", 12}, {"intermediate_size", 1536},
      {"max_position_embeddings", 512}, {"type_vocab_size", 2}};
  nlohmann::json distilbert_ = {{"model_type", "distilbert"},
                                {"vocab_size", 28996},
                                {"dim", 768},
                                {"n_layers", 6},
                                {"n_heads", 12},
                                {"hidden_dim", 3072},
                                {"max_position_embeddings", 512},
                                {"activation", "gelu"},
                                {"dropout", 0.15},
                                {"attention_dropout", 0.05},
                                {"sinusoidal_pos_embds", false}};
};

TEST_F(ModelConfigTest, RefusesAPipeWithoutWaitingForItsWriter) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("config.json: is a pipe, expected a regular file"));
}

TEST_F(ModelConfigTest, ReadsAFileThatTransformersWrote) {
  const auto golden = tilewright::testing::source_dir() / "tests/golden/data/small_d64";
  for (const auto& path : {golden, golden / "config.json"}) {
    const ModelConfig config = read_model_config(path);
    EXPECT_EQ(config.encoder.vocab_size, 120);
    EXPECT_EQ(config.encoder.hidden_size, 128);
    EXPECT_EQ(config.encoder.num_hidden_layers, 2);
    EXPECT_EQ(config.encoder.num_attention_heads, 2);
    EXPECT_EQ(config.encoder.head_size(), 64);
    EXPECT_EQ(config.encoder.intermediate_size, 256);
    EXPECT_EQ(config.encoder.max_position_embeddings, 64);
    EXPECT_EQ(config.encoder.type_vocab_size, 2);
    EXPECT_EQ(config.encoder.layer_norm_eps, 1e-5f);
    EXPECT_EQ(config.encoder.num_labels, 3);
    EXPECT_THAT(config.labels, ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  }
}

TEST_F(ModelConfigTest, UsesTheReferenceDefaultsForNonSizes) {
  const ModelConfig config = read(minimal_);
  EXPECT_EQ(config.encoder.layer_norm_eps, 1e-12f);
  EXPECT_EQ(config.encoder.hidden_dropout_prob, 0.1f);
  EXPECT_EQ(config.encoder.attention_probs_dropout_prob, 0.1f);
  EXPECT_EQ(config.encoder.classifier_dropout, 0.1f);
  EXPECT_EQ(config.encoder.initializer_range, 0.02f);
  EXPECT_EQ(config.encoder.num_labels, 2);
}

TEST_F(ModelConfigTest, UsesTheHiddenDropoutAsDefaultOfTheClassifierDropout) {
  minimal_["hidden_dropout_prob"] = 0.25;
  minimal_["classifier_dropout"] = nullptr;
  EXPECT_EQ(read(minimal_).encoder.classifier_dropout, 0.25f);
  EXPECT_TRUE(read(minimal_).classifier_has_hidden_dropout);
  minimal_["classifier_dropout"] = 0.5;
  EXPECT_FALSE(read(minimal_).classifier_has_hidden_dropout);
  EXPECT_EQ(read(minimal_).encoder.classifier_dropout, 0.5f);
}

// BertConfig and DistilBertConfig have the default 0; torch.nn.Embedding counts a negative
// padding_idx from the end and refuses one beyond the vocabulary.
TEST_F(ModelConfigTest, ReadsThePadTokenAsPaddingIdx) {
  EXPECT_EQ(read(minimal_).encoder.padding_idx, 0);
  for (const auto& [id, expected] : {std::pair(nlohmann::json(), -1),
                                     {nlohmann::json(-30522), 0},
                                     {nlohmann::json(-1), 30521},
                                     {nlohmann::json(7), 7}}) {
    minimal_["pad_token_id"] = id;
    EXPECT_EQ(read(minimal_).encoder.padding_idx, expected) << id;
  }
  expect_refused({{"pad_token_id", 30522}},
                 "pad_token_id is 30522, expected an integer from -30522 to 30521");
  expect_refused({{"pad_token_id", -30523}}, "pad_token_id is -30523, expected an integer");
}

TEST_F(ModelConfigTest, ReadsLabelsFromId2labelOrNumLabels) {
  minimal_["num_labels"] = 5;
  EXPECT_EQ(read(minimal_).encoder.num_labels, 5);
  minimal_["id2label"] = {{"1", "yes"}, {"0", "no"}, {"2", "maybe"}};
  EXPECT_THAT(read(minimal_).labels, ElementsAre("no", "yes", "maybe"));
}

// run_glue.py takes the labels of the data as they are: BertConfig.save_pretrained() of
// transformers
// 4.57.6 writes these for integers, booleans and floats.
TEST_F(ModelConfigTest, TakesLabelsThatAreNoStringsAsTheirText) {
  const auto labels_of = [&](const char* labels) {
    minimal_.update(nlohmann::json::parse(labels));
    return read(minimal_).labels;
  };
  EXPECT_THAT(labels_of(R"({"id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1}})"),
              ElementsAre("0", "1"));
  EXPECT_THAT(labels_of(R"({"id2label": {"0": -1, "1": 10}, "label2id": {"-1": 0, "10": 1}})"),
              ElementsAre("-1", "10"));
  EXPECT_THAT(
      labels_of(R"({"id2label": {"0": false, "1": true}, "label2id": {"false": 0, "true": 1}})"),
      ElementsAre("False", "True"));
  EXPECT_THAT(labels_of(R"({"id2label": {"0": 1.0, "1": 2.5}, "label2id": {"1.0": 0, "2.5": 1}})"),
              ElementsAre("1.0", "2.5"));
}

TEST_F(ModelConfigTest, FindsTheTypeOfOldModelsInTheirClass) {
  minimal_.erase("model_type");
  for (const auto& [name, accepted] : {std::pair("BertForMaskedLM", true),
                                       {"BertModel", true},
                                       {"BertGenerationEncoder", false},
                                       {"RobertaForMaskedLM", false}}) {
    minimal_["architectures"] = {name};
    if (accepted) {
      const ModelConfig config = read(minimal_);
      EXPECT_EQ(config.encoder.family, &nn::kBert);
      const auto written =
          nlohmann::json::parse(model_config_json(config.json, config.labels, config.encoder, ""));
      EXPECT_EQ(written.at("model_type"), "bert");
    } else {
      expect_refused(nlohmann::json::object(),
                     "model_type is missing; expected \"bert\" or \"distilbert\"");
    }
  }
  minimal_["architectures"] = nlohmann::json::array();
  expect_refused(nlohmann::json::object(), "model_type is missing");
}

TEST_F(ModelConfigTest, TakesTheSameActivationByItsOtherName) {
  minimal_["hidden_act"] = "gelu_python";
  EXPECT_EQ(read(minimal_).encoder.hidden_size, 384);
}

TEST_F(ModelConfigTest, RefusesAnotherArchitecture) {
  expect_refused({{"model_type", "roberta"}},
                 "model_type is \"roberta\", expected \"bert\" or \"distilbert\"");
  expect_refused({{"model_type", nullptr}},
                 "model_type is null, expected \"bert\" or \"distilbert\"");
  expect_refused({{"hidden_act", "gelu_new"}}, "hidden_act is \"gelu_new\", expected \"gelu\"");
  expect_refused({{"position_embedding_type", "relative_key"}},
                 "position_embedding_type is \"relative_key\", expected \"absolute\"");
  expect_refused({{"is_decoder", true}}, "is_decoder is true, expected false");
}

TEST_F(ModelConfigTest, RefusesSizesMissingOutOfRangeOrNotDivisible) {
  for (const auto& [name, unused] : minimal_.items()) {
    if (name == "model_type") continue;
    expect_refused({{name, nullptr}}, name + " is null, expected an integer from 1");
    expect_refused({{name, 0}}, name + " is 0, expected");
    expect_refused({{name, -1}}, name + " is -1, expected");
    expect_refused({{name, 1.5}}, name + " is 1.5, expected");
    expect_refused({{name, "12"}}, name + " is \"12\", expected");
    expect_refused({{name, UINT64_MAX}}, name + " is 18446744073709551615, expected");
  }
  expect_refused({{"num_attention_heads", 10}},
                 "hidden_size is 384, expected a multiple of num_attention_heads, which is 10");
  expect_refused({{"hidden_size", 300}},
                 "hidden_size is 300, expected a multiple of 2 times num_attention_heads, which is "
                 "12, up to 16384");
  expect_refused({{"hidden_size", 32768}, {"num_attention_heads", 64}}, "hidden_size is 32768");
  expect_refused({{"hidden_dropout_prob", 1}},
                 "hidden_dropout_prob is 1, expected a number from 0");
  expect_refused({{"layer_norm_eps", 0}}, "layer_norm_eps is 0, expected");
  minimal_.erase("vocab_size");
  expect_refused(nlohmann::json::object(), "vocab_size is missing; expected an integer");
}

TEST_F(ModelConfigTest, RefusesLabelsThatAreNotCountedFromZero) {
  expect_refused({{"id2label", {{"1", "a"}, {"2", "b"}}}}, "id2label.0 is missing");
  expect_refused({{"id2label", {{"0", {7}}}}},
                 "id2label.0 is [7], expected a string, a number or a boolean");
  expect_refused({{"id2label", nlohmann::json::object()}}, "id2label is {}, expected 1 to");
  expect_refused({{"num_labels", 0}}, "num_labels is 0");
}

TEST_F(ModelConfigTest, RefusesMissingAndInvalidFiles) {
  expect_failure([&] { read_model_config(directory_.path() / "nowhere"); }, ExitCode::kModel,
                 HasSubstr("nowhere: model directory not found"));
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("config.json: cannot open"));
  write_file(path_, "{\"model_type\": ");
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("is not valid JSON at byte"));
  // Zeros that a file system adds after a power loss.
  write_file(path_, std::string("{}\n\0\0", 5));
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("is not valid JSON at byte 4"));
  write_file(path_, "[1]");
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("expected a JSON object"));
  write_file(path_, std::string(1000, '['));
  expect_failure([&] { read_model_config(directory_.path()); }, ExitCode::kModel,
                 HasSubstr("nests deeper"));
}

TEST_F(ModelConfigTest, KeepsOtherFieldsInTheConfigOfTheClassifier) {
  minimal_["architectures"] = {"BertModel"};
  minimal_["num_labels"] = 7;
  minimal_["dtype"] = "bfloat16";
  minimal_["custom"] = {{"kept", true}};
  const auto json = nlohmann::json::parse(
      model_config_json(read(minimal_).json, {"no", "yes"}, nn::EncoderConfig(), "mrpc"));
  EXPECT_EQ(json["architectures"], nlohmann::json::array({"BertForSequenceClassification"}));
  EXPECT_EQ(json["id2label"], nlohmann::json({{"0", "no"}, {"1", "yes"}}));
  EXPECT_EQ(json["label2id"], nlohmann::json({{"no", 0}, {"yes", 1}}));
  EXPECT_EQ(json["dtype"], "float32");
  EXPECT_EQ(json["torch_dtype"], "float32");
  EXPECT_EQ(json["custom"], minimal_["custom"]);
  EXPECT_EQ(json["finetuning_task"], "mrpc");
  EXPECT_FALSE(json.contains("num_labels"));
  EXPECT_EQ(json["hidden_size"], 384);
  EXPECT_EQ(read(json).encoder.num_labels, 2);
}

TEST_F(ModelConfigTest, FindsTheFinetuningTask) {
  EXPECT_EQ(read_model_task("").finetuning_task, "");
  EXPECT_EQ(read_model_task(directory_.path() / "none").finetuning_task, "");
  read(minimal_);
  EXPECT_EQ(read_model_task(directory_.path()).finetuning_task, "");
  minimal_["finetuning_task"] = "MRPC";
  read(minimal_);
  EXPECT_EQ(read_model_task(directory_.path()).finetuning_task, "MRPC");
  EXPECT_EQ(read_model_task(directory_.path() / "config.json").finetuning_task, "MRPC");
  minimal_["finetuning_task"] = nullptr;
  read(minimal_);
  EXPECT_EQ(read_model_task(directory_.path()).finetuning_task, "");
}

TEST_F(ModelConfigTest, SaysWhetherTheModelAnswersQuestions) {
  EXPECT_FALSE(read_model_task(directory_.path() / "none").answers_questions);
  const auto answers_questions = [&](const nlohmann::json& architectures) {
    minimal_["architectures"] = architectures;
    read(minimal_);
    return read_model_task(directory_.path()).answers_questions;
  };
  EXPECT_TRUE(answers_questions({"BertForQuestionAnswering"}));
  EXPECT_TRUE(answers_questions({"DistilBertForQuestionAnswering"}));
  EXPECT_FALSE(answers_questions({"BertForSequenceClassification"}));
  EXPECT_FALSE(answers_questions(nlohmann::json::array()));
  EXPECT_FALSE(answers_questions({7}));
  EXPECT_FALSE(answers_questions(nullptr));
}

TEST_F(ModelConfigTest, WritesTheArchitectureAndTheProblemOfEachHead) {
  minimal_["finetuning_task"] = "of another head";
  minimal_["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  minimal_["label2id"] = {{"a", 0}, {"b", 1}, {"c", 2}};
  const auto written = [&](const nlohmann::json& source, const std::vector<std::string>& labels,
                           nn::Head head) {
    ModelConfig config = read(source);
    config.encoder.head = head;
    return nlohmann::json::parse(model_config_json(config.json, labels, config.encoder, ""));
  };
  for (const auto& [source, name] :
       {std::pair(minimal_, "Bert"), std::pair(distilbert_, "DistilBert")}) {
    const std::string family = name;
    const auto classes = written(source, {"no", "yes"}, nn::Head::kClassification);
    EXPECT_EQ(classes["architectures"][0], family + "ForSequenceClassification");
    EXPECT_EQ(classes["problem_type"], "single_label_classification");
    const auto regression = written(source, {}, nn::Head::kRegression);
    EXPECT_EQ(regression["architectures"][0], family + "ForSequenceClassification");
    EXPECT_EQ(regression["problem_type"], "regression");
    EXPECT_EQ(regression["id2label"], nlohmann::json({{"0", "LABEL_0"}}));
    EXPECT_EQ(regression["label2id"], nlohmann::json({{"LABEL_0", 0}}));
    EXPECT_EQ(read(regression).encoder.num_labels, 1);
    const auto answers = written(source, {}, nn::Head::kQuestionAnswering);
    EXPECT_EQ(answers["architectures"][0], family + "ForQuestionAnswering");
    for (const char* absent : {"id2label", "label2id", "problem_type", "num_labels"}) {
      EXPECT_FALSE(answers.contains(absent)) << absent;
    }
    EXPECT_EQ(read(answers).encoder.num_labels, 2);
    EXPECT_FALSE(answers.contains("finetuning_task"));
  }
}

TEST_F(ModelConfigTest, ReadsDistilBert) {
  const ModelConfig config = read(distilbert_);
  EXPECT_EQ(config.encoder.family, &nn::kDistilBert);
  EXPECT_EQ(config.encoder.hidden_size, 768);
  EXPECT_EQ(config.encoder.num_hidden_layers, 6);
  EXPECT_EQ(config.encoder.num_attention_heads, 12);
  EXPECT_EQ(config.encoder.intermediate_size, 3072);
  EXPECT_EQ(config.encoder.max_position_embeddings, 512);
  EXPECT_EQ(config.encoder.vocab_size, 28996);
  EXPECT_EQ(config.encoder.type_vocab_size, 0);
  EXPECT_EQ(config.encoder.layer_norm_eps, 1e-12f);
  EXPECT_EQ(config.encoder.hidden_dropout_prob, 0.15f);
  EXPECT_EQ(config.encoder.attention_output_dropout_prob(), 0.0f);
  EXPECT_EQ(config.encoder.attention_probs_dropout_prob, 0.05f);
  EXPECT_EQ(config.encoder.classifier_dropout, 0.2f);
  EXPECT_EQ(config.encoder.qa_dropout, 0.1f);
  distilbert_["seq_classif_dropout"] = 0.3;
  distilbert_["qa_dropout"] = 0.4;
  EXPECT_EQ(read(distilbert_).encoder.classifier_dropout, 0.3f);
  EXPECT_EQ(read(distilbert_).encoder.qa_dropout, 0.4f);
}

TEST_F(ModelConfigTest, NamesTheFieldsOfTheFamilyInErrors) {
  minimal_ = distilbert_;
  expect_refused({{"n_heads", 10}}, "dim is 768, expected a multiple of n_heads, which is 10");
  expect_refused({{"activation", "relu"}}, "activation is \"relu\", expected \"gelu\"");
  expect_refused({{"qa_dropout", 1}}, "qa_dropout is 1, expected a number from 0");
  minimal_.erase("hidden_dim");
  expect_refused(nlohmann::json::object(), "hidden_dim is missing; expected an integer");
}

}  // namespace
}  // namespace tilewright::checkpoint
