#include "worker/nn/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

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
  const ParameterLayout layout(small());
  std::int64_t end = 0;
  for (const Tensor& tensor : layout.tensors) {
    EXPECT_EQ(tensor.offset, end) << tensor.name;
    end += tensor.count;
  }
  EXPECT_EQ(end, layout.count);
  EXPECT_EQ(layout.tensors.back().name, "bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(layout.tensors.back().offset, layout.word_embeddings);
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
  for (const Tensor& tensor : ParameterLayout(small()).tensors) {
    const bool exempt = tensor.name.find("bias") != std::string::npos ||
                        tensor.name.find("LayerNorm") != std::string::npos;
    EXPECT_EQ(tensor.decays, !exempt) << tensor.name;
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
  const std::vector<std::int32_t> three(3, 1);
  const std::vector<std::int32_t> five(5, 1);
  batch.add(three, three, {}, 0);
  batch.add(five, five, {.label = 1}, 1);
  // L = 2, P = 4 * 256 + 2 * 384 = 1792: 2 L P (3 + 5) + 4 L H (9 + 25) + 2 * 2 (256 + 32)
  EXPECT_DOUBLE_EQ(forward_flops(small(), batch), 57344.0 + 4352.0 + 1152.0);
}

}  // namespace
}  // namespace tilewright::nn
