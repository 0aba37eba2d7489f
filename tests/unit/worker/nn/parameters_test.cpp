#include "worker/nn/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/batch.h"
#include "worker/nn/flops.h"
#include "worker/nn/gradients.h"

namespace tilewright::nn {
namespace {

EncoderConfig small() {
  EncoderConfig config;
  config.vocab_size = 20;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.max_position_embeddings = 12;
  return config;
}

TEST(ParameterLayout, CoversTheVectorWithoutGapsAndPutsWordEmbeddingsLast) {
  for (const testing::Variant& variant : testing::all_variants()) {
    const ParameterLayout layout(testing::small_config(variant));
    std::int64_t end = 0;
    for (const Tensor& tensor : layout.tensors) {
      EXPECT_EQ(tensor.offset, end) << tensor.name;
      EXPECT_EQ(tensor.head, end < layout.head_end) << tensor.name;
      end += tensor.count;
    }
    EXPECT_EQ(end, layout.count);
    EXPECT_EQ(layout.head_end, layout.layers.back().begin);
    EXPECT_EQ(layout.tensors.back().name,
              std::string(variant.family->prefix) + "embeddings.word_embeddings.weight");
    EXPECT_EQ(layout.tensors.back().offset, layout.word_embeddings);
    for (const LinearLayout& linear : layout.linears()) EXPECT_GT(linear.N, 0);
  }
}

// The tensors and shapes are those of transformers' classes (model.named_parameters()).
TEST(ParameterLayout, NamesTheTensorsOfDistilBert) {
  EncoderConfig config = small();
  config.family = &kDistilBert;
  config.type_vocab_size = 0;
  config.num_hidden_layers = 1;
  using Named = std::set<std::pair<std::string, std::vector<std::int64_t>>>;
  const auto named = [&](Head head) {
    config.head = head;
    Named names;
    for (const Tensor& tensor : ParameterLayout(config).tensors) {
      names.emplace(tensor.name, tensor.shape);
    }
    return names;
  };
  const std::string layer = "distilbert.transformer.layer.0.";
  Named encoder = {
      {"distilbert.embeddings.word_embeddings.weight", {20, 16}},
      {"distilbert.embeddings.position_embeddings.weight", {12, 16}},
      {"distilbert.embeddings.LayerNorm.weight", {16}},
      {"distilbert.embeddings.LayerNorm.bias", {16}},
      {layer + "sa_layer_norm.weight", {16}},
      {layer + "sa_layer_norm.bias", {16}},
      {layer + "ffn.lin1.weight", {24, 16}},
      {layer + "ffn.lin1.bias", {24}},
      {layer + "ffn.lin2.weight", {16, 24}},
      {layer + "ffn.lin2.bias", {16}},
      {layer + "output_layer_norm.weight", {16}},
      {layer + "output_layer_norm.bias", {16}},
  };
  for (const char* part : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
    encoder.insert({layer + "attention." + part + ".weight", {16, 16}});
    encoder.insert({layer + "attention." + part + ".bias", {16}});
  }
  Named classifier = encoder;
  classifier.insert({{"pre_classifier.weight", {16, 16}},
                     {"pre_classifier.bias", {16}},
                     {"classifier.weight", {2, 16}},
                     {"classifier.bias", {2}}});
  EXPECT_EQ(named(Head::kClassification), classifier);
  Named answers = encoder;
  answers.insert({{"qa_outputs.weight", {2, 16}}, {"qa_outputs.bias", {2}}});
  EXPECT_EQ(named(Head::kQuestionAnswering), answers);
}

TEST(ParameterLayout, HasNoPoolerForQuestionAnswering) {
  EncoderConfig config = small();
  config.head = Head::kQuestionAnswering;
  std::vector<std::string> head;
  for (const Tensor& tensor : ParameterLayout(config).tensors) {
    EXPECT_EQ(tensor.name.find("pooler"), std::string::npos);
    if (tensor.head) head.push_back(tensor.name);
  }
  EXPECT_EQ(head, (std::vector<std::string>{"qa_outputs.weight", "qa_outputs.bias"}));
}

TEST(ParameterLayout, PutsQueryKeyAndValueInOneMatrix) {
  const ParameterLayout layout(small());
  const LinearLayout& qkv = layout.layers[1].qkv;
  EXPECT_EQ(qkv.N, 48);
  std::vector<std::string> names;
  for (const Tensor& tensor : layout.tensors) {
    if (tensor.offset >= qkv.weight && tensor.offset < qkv.bias + qkv.N)
      names.push_back(tensor.name);
  }
  const std::string self = "bert.encoder.layer.1.attention.self.";
  EXPECT_EQ(names, (std::vector<std::string>{self + "query.weight", self + "key.weight",
                                             self + "value.weight", self + "query.bias",
                                             self + "key.bias", self + "value.bias"}));
}

TEST(ParameterLayout, DecaysEverythingExceptBiasesAndLayerNorm) {
  for (const testing::Variant& variant : testing::all_variants()) {
    for (const Tensor& tensor : ParameterLayout(testing::small_config(variant)).tensors) {
      const bool exempt = tensor.name.find("bias") != std::string::npos ||
                          tensor.name.find("LayerNorm") != std::string::npos ||
                          tensor.name.find("layer_norm") != std::string::npos;
      EXPECT_EQ(tensor.decays, !exempt) << tensor.name;
    }
  }
}

TEST(InitialiseTensor, HasTheRequestedStddevAndIsReproducible) {
  const Tensor weight{"classifier.weight", {2, 5000}, 0, 10000, true};
  std::vector<float> a(10000);
  std::vector<float> b(10000);
  initialise_tensor(weight, 42, 0.02f, a.data());
  initialise_tensor(weight, 42, 0.02f, b.data());
  EXPECT_EQ(a, b);
  initialise_tensor(weight, 43, 0.02f, b.data());
  EXPECT_NE(a, b);
  double sum = 0;
  double squares = 0;
  for (const float x : a) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  // Five standard errors of the mean and of the deviation of 10,000 draws.
  EXPECT_NEAR(sum / 10000, 0.0, 5 * 0.02 / 100);
  EXPECT_NEAR(std::sqrt(squares / 10000), 0.02, 5 * 0.02 / std::sqrt(20000.0));
}

TEST(RowIndex, ListsTheTokensOfEachRowInAscendingOrder) {
  const std::vector<std::int32_t> ids = {7, 3, 7, 5, 3, 7};
  std::vector<std::int32_t> row_of_id(10, -1);
  row_of_id[3] = 0;
  row_of_id[5] = 1;
  row_of_id[6] = 2;  // occurs only in another worker's examples
  row_of_id[7] = 3;
  RowIndex index;
  index.build(ids, 1, 6, row_of_id.data(), 4);
  EXPECT_EQ(index.row_offsets, (std::vector<std::int32_t>{0, 2, 3, 3, 5}));
  EXPECT_EQ(index.occurrences, (std::vector<std::int32_t>{1, 4, 3, 2, 5}));
}

TEST(TouchedRows, NumbersTheIdsOfTheBatchInAscendingOrder) {
  TouchedRows touched(10);
  touched.mark(std::vector<std::int32_t>{7, 3, 7});
  touched.mark(std::vector<std::int32_t>{5});
  touched.finish();
  EXPECT_EQ(touched.ids, (std::vector<std::int32_t>{3, 5, 7}));
  EXPECT_EQ(touched.row_of_id[5], 1);
  touched.clear();
  touched.mark(std::vector<std::int32_t>{7});
  touched.finish();
  EXPECT_EQ(touched.ids, (std::vector<std::int32_t>{7}));
}

TEST(Flops, CountRealTokensOnly) {
  Batch batch;
  batch.add(std::vector<std::int32_t>(3, 1), 3, {}, 0);
  batch.add(std::vector<std::int32_t>(5, 1), 5, {.label = 1}, 1);
  // L = 2, P = 4 * 256 + 2 * 384 = 1792: 2 L P (3 + 5) + 4 L H (9 + 25) + 2 * 2 (256 + 32), less
  // 2 (256 + 2 * 384) (2 + 4) of the last layer
  EXPECT_DOUBLE_EQ(forward_flops(small(), batch), 57344.0 + 4352.0 + 1152.0 - 12288.0);
  // Question answering has one layer [2, H] on 8 tokens instead.
  EncoderConfig answers = small();
  answers.head = Head::kQuestionAnswering;
  EXPECT_DOUBLE_EQ(forward_flops(answers, batch), 57344.0 + 4352.0 + 2 * 8 * 32);
}

}  // namespace
}  // namespace tilewright::nn
