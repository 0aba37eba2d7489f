// Tests that the logits of an example do not depend on the other examples of its batch, so that an
// evaluation may cut its batches anywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/model.h"

namespace tilewright::nn {
namespace {

using testing::IsaCase;

// More rows than a block of the linear layers has.
std::int32_t length_of(std::int32_t example) { return 1 + 11 * example % 31; }
constexpr std::int32_t kExamples = 41;

void add_example(std::int32_t example, Batch& batch) {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(length_of(example)));
  for (std::int32_t i = 0; i < length_of(example); ++i) ids.push_back((7 * i + 13 * example) % 50);
  batch.add(ids, example % 2 == 0 ? ids.size() : 0, {}, example);
}

template <typename Element>
class InferenceModel {
 public:
  InferenceModel(const IsaCase& tested, int layers)
      : config_(make_config(tested, layers)),
        ops_(kernels::make_ops<Element>(tested.isa)),
        parameter_ops_(kernels::make_parameter_ops(tested.isa)),
        context_{pool_, ops_, parameter_ops_},
        model_(config_, context_) {
    for (const Tensor& tensor : model_.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      initialise_tensor(drawn, 3, 0.2f, model_.parameters().data() + tensor.offset);
    }
    model_.pack_weights();
  }
  // Of the examples [begin, end), in their order.
  std::vector<Element> logits(std::int32_t begin, std::int32_t end, bool training = false) {
    Batch batch;
    for (std::int32_t example = begin; example < end; ++example) add_example(example, batch);
    model_.reserve(training ? batch.limits() : BatchLimits{}, 1, batch.limits());
    const auto found = model_.forward(batch, {}, training);
    return {found.begin(), found.end()};
  }

 private:
  static EncoderConfig make_config(const IsaCase& tested, int layers) {
    EncoderConfig config = testing::small_config(tested.variant);
    config.num_hidden_layers = layers;
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    config.classifier_dropout = config.qa_dropout = 0;
    return config;
  }

  EncoderConfig config_;
  runtime::ThreadPool pool_{2};
  kernels::Ops<Element> ops_;
  kernels::ParameterOps parameter_ops_;
  Context<Element> context_;
  Model<Element> model_;
};

class Inference : public ::testing::TestWithParam<IsaCase> {
 protected:
  template <typename Element>
  void check() {
    InferenceModel<Element> model(GetParam(), 2);
    const std::vector<Element> whole = model.logits(0, kExamples);
    for (const std::int32_t size : {1, 8}) {
      std::vector<Element> cut;
      for (std::int32_t at = 0; at < kExamples; at += size) {
        const auto found = model.logits(at, std::min(at + size, kExamples));
        cut.insert(cut.end(), found.begin(), found.end());
      }
      ASSERT_EQ(cut.size(), whole.size());
      EXPECT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * sizeof(Element)), 0)
          << size << " examples in a batch";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Inference, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return testing::case_name(tested.param); });

TEST_P(Inference, LogitsInBf16DoNotDependOnTheBatch) { check<bf16>(); }
TEST_P(Inference, LogitsInFp32DoNotDependOnTheBatch) { check<float>(); }

// Layers share buffers in inference only.
TEST_P(Inference, GivesTheLogitsOfATrainingWithoutDropout) {
  for (const int layers : {1, 2, 5}) {
    InferenceModel<bf16> model(GetParam(), layers);
    const std::vector<bf16> training = model.logits(0, kExamples, true);
    const std::vector<bf16> inference = model.logits(0, kExamples);
    ASSERT_EQ(inference.size(), training.size());
    EXPECT_EQ(std::memcmp(inference.data(), training.data(), training.size() * sizeof(bf16)), 0)
        << layers << " layers";
  }
}

}  // namespace
}  // namespace tilewright::nn
