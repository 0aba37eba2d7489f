// Reads, refuses and writes config.json.
#include "worker/checkpoint/model_config.h"

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
};

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
  minimal_["classifier_dropout"] = 0.5;
  EXPECT_EQ(read(minimal_).encoder.classifier_dropout, 0.5f);
}

TEST_F(ModelConfigTest, ReadsLabelsFromId2labelOrNumLabels) {
  minimal_["num_labels"] = 5;
  EXPECT_EQ(read(minimal_).encoder.num_labels, 5);
  minimal_["id2label"] = {{"1", "yes"}, {"0", "no"}, {"2", "maybe"}};
  EXPECT_THAT(read(minimal_).labels, ElementsAre("no", "yes", "maybe"));
}

TEST_F(ModelConfigTest, RefusesAnotherArchitecture) {
  expect_refused({{"model_type", "distilbert"}}, "model_type is \"distilbert\", expected \"bert\"");
  expect_refused({{"model_type", nullptr}}, "model_type is null, expected \"bert\"");
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
  expect_refused({{"hidden_dropout_prob", 1}},
                 "hidden_dropout_prob is 1, expected a number from 0");
  expect_refused({{"layer_norm_eps", 0}}, "layer_norm_eps is 0, expected");
  minimal_.erase("vocab_size");
  expect_refused(nlohmann::json::object(), "vocab_size is missing; expected an integer");
}

TEST_F(ModelConfigTest, RefusesLabelsThatAreNotCountedFromZero) {
  expect_refused({{"id2label", {{"1", "a"}, {"2", "b"}}}}, "id2label.0 is missing");
  expect_refused({{"id2label", {{"0", 7}}}}, "id2label.0 is 7, expected a string");
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
  const auto json = nlohmann::json::parse(model_config_json(read(minimal_).json, {"no", "yes"}));
  EXPECT_EQ(json["architectures"], nlohmann::json::array({"BertForSequenceClassification"}));
  EXPECT_EQ(json["id2label"], nlohmann::json({{"0", "no"}, {"1", "yes"}}));
  EXPECT_EQ(json["label2id"], nlohmann::json({{"no", 0}, {"yes", 1}}));
  EXPECT_EQ(json["torch_dtype"], "float32");
  EXPECT_EQ(json["custom"], minimal_["custom"]);
  EXPECT_FALSE(json.contains("num_labels"));
  EXPECT_FALSE(json.contains("dtype"));
  EXPECT_EQ(json["hidden_size"], 384);
  EXPECT_EQ(read(json).encoder.num_labels, 2);
}

}  // namespace
}  // namespace tilewright::checkpoint
