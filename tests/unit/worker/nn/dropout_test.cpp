// Tests where each family drops out, as in transformers' modeling files. A place is isolated by
// zeros elsewhere, which dropout does not change.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/model.h"

namespace tilewright::nn {
namespace {

using testing::Variant;

enum class Place { kEmbeddings, kAttentionOutput, kOutput, kHead };

// Whether the logits of training and evaluation differ because of dropout at this place.
bool drops(const Variant& variant, Place place) {
  EncoderConfig config = testing::small_config(variant);
  config.attention_probs_dropout_prob = 0;
  if (place == Place::kHead) {
    config.hidden_dropout_prob = 0;
  } else {
    config.classifier_dropout = config.qa_dropout = 0;
  }
  runtime::ThreadPool pool(1);
  const auto ops = kernels::make_ops<float>(runtime::Isa::kRef);
  const auto parameter_ops = kernels::make_parameter_ops(runtime::Isa::kRef);
  Model<float> model(config, {pool, ops, parameter_ops});
  const std::span<float> values = model.parameters();
  for (const Tensor& tensor : model.layout().tensors) {
    Tensor drawn = tensor;
    drawn.decays = true;
    initialise_tensor(drawn, 3, 0.2f, values.data() + tensor.offset);
  }
  const auto zero = [&](std::int64_t begin, std::int64_t count) {
    std::fill_n(values.data() + begin, count, 0.0f);
  };
  const auto zero_linear = [&](const LinearLayout& linear) {
    zero(linear.weight, linear.N * linear.K);
    zero(linear.bias, linear.N);
  };
  if (place == Place::kAttentionOutput || place == Place::kOutput) {
    zero(model.layout().embedding_norm.gamma, config.hidden_size);
    zero(model.layout().embedding_norm.beta, config.hidden_size);
  }
  for (const EncoderLayerLayout& layer : model.layout().layers) {
    if (place != Place::kAttentionOutput) zero_linear(layer.attention_output);
    if (place != Place::kOutput) zero_linear(layer.output);
  }
  model.pack_weights();

  Batch batch;
  batch.open_group(0);
  batch.add(std::vector<std::int32_t>{3, 14, 15}, 2, {}, 0);
  batch.close_shard();
  model.reserve(batch.limits(), 1, batch.limits());
  const auto logits = [&](bool training) {
    const auto found = model.forward(batch, {7, 3}, training);
    return std::vector<float>(found.begin(), found.end());
  };
  return logits(true) != logits(false);
}

class DropoutPlaces : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(EveryHead, DropoutPlaces, ::testing::ValuesIn(testing::all_variants()),
                         [](const auto& tested) { return testing::name_of(tested.param); });

TEST_P(DropoutPlaces, AreThoseOfTransformers) {
  const bool distilbert = GetParam().family == &kDistilBert;
  EXPECT_TRUE(drops(GetParam(), Place::kEmbeddings));
  EXPECT_TRUE(drops(GetParam(), Place::kOutput));
  EXPECT_EQ(drops(GetParam(), Place::kAttentionOutput), !distilbert);
  const bool answers = GetParam().head == Head::kQuestionAnswering;
  EXPECT_EQ(drops(GetParam(), Place::kHead), distilbert || !answers);
}

}  // namespace
}  // namespace tilewright::nn
