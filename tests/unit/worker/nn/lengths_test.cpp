// Compares logits, losses and gradients of sequences of 1 to 512 tokens with the reference kernels
// in fp32, on every instruction set: alone in a batch of one, and packed with sequences of other
// lengths.
#include "tests/unit/worker/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/worker/nn/variants.h"
#include "tests/unit/worker/nn/zero_gradients.h"
#include "worker/nn/model.h"

namespace tilewright::nn {
namespace {

using runtime::Isa;
using testing::Variant;

constexpr std::int32_t kPositions = 512;

const std::vector<std::vector<std::int32_t>> kPacked = {
    {1, 512},           {512, 1},      {511, 1, 1},  {64, 15, 300, 1, 31},
    {129, 2, 257, 384}, {16, 33, 450}, {1, 1, 1, 1}, {17, 255, 48, 65, 128, 7}};

// One attention head and one layer: all lengths take a second.
EncoderConfig make_lengths_config(const Variant& variant) {
  EncoderConfig config = testing::small_config(variant);
  config.max_position_embeddings = kPositions;
  config.hidden_size = 32;
  config.num_attention_heads = 1;
  config.intermediate_size = 48;
  config.num_hidden_layers = 1;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  config.classifier_dropout = config.qa_dropout = 0;
  return config;
}

Batch make_lengths_batch(Head head, const std::vector<std::int32_t>& lengths) {
  Batch batch;
  batch.open_group(0);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    testing::add_example(batch, head, static_cast<std::int32_t>(b), lengths[b]);
  }
  batch.close_shard();
  return batch;
}

// Of the sum of the losses.
struct Computed {
  std::vector<float> logits, losses, gradient;
};

// A model of any data type.
class LengthsModel {
 public:
  virtual ~LengthsModel() = default;
  virtual Computed compute(const Batch& batch) = 0;
  virtual const ParameterLayout& layout() const = 0;
};

template <typename Element>
class LengthsModelOf : public LengthsModel {
 public:
  LengthsModelOf(const Variant& variant, Isa isa)
      : config_(make_lengths_config(variant)),
        ops_(kernels::make_ops<Element>(isa)),
        parameter_ops_(kernels::make_parameter_ops(isa)),
        context_{pool_, ops_, parameter_ops_},
        model_(config_, context_),
        touched_(config_.vocab_size) {
    for (const Tensor& tensor : model_.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      float* values = model_.parameters().data() + tensor.offset;
      // Queries of twice the size of keys, so that a few tokens have most of the attention.
      const bool of_queries = tensor.offset == model_.layout().layers[0].qkv.weight;
      initialise_tensor(drawn, 3, of_queries ? 0.4f : 0.2f, values);
      if (tensor.name.ends_with("orm.weight")) {
        for (std::int64_t i = 0; i < tensor.count; ++i) values[i] += 1;
      }
    }
    model_.pack_weights();
    for (std::int32_t id = 0; id < config_.vocab_size; ++id) touched_.mark(std::span(&id, 1));
    touched_.finish();
    model_.reserve({1024, 8, kPositions}, 1);
  }
  Computed compute(const Batch& batch) override {
    Computed out;
    for (const Element x : model_.forward(batch, {}, true)) {
      out.logits.push_back(runtime::to_float(x));
    }
    const auto losses = model_.losses(batch);
    out.losses.assign(losses.begin(), losses.end());
    out.gradient.assign(static_cast<std::size_t>(model_.gradient_count(touched_.R())),
                        std::nanf(""));
    GradientSink sink;
    sink.groups = {out.gradient.data()};
    model_.backward(batch, {}, 1, touched_, sink);
    return out;
  }
  const ParameterLayout& layout() const override { return model_.layout(); }

 private:
  EncoderConfig config_;
  runtime::ThreadPool pool_{2};
  kernels::Ops<Element> ops_;
  kernels::ParameterOps parameter_ops_;
  Context<Element> context_;
  Model<Element> model_;
  TouchedRows touched_;
};

double norm(std::span<const float> x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}
double distance(std::span<const float> x, std::span<const float> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(static_cast<double>(x[i]) - y[i], 2);
  return std::sqrt(sum);
}

// The errors of what a model computed, by name.
using Errors = std::map<std::string, double>;

Errors errors_of(const ParameterLayout& layout, const Computed& found, const Computed& expected) {
  Errors errors = {
      {"logits", distance(found.logits, expected.logits) / norm(expected.logits)},
      {"losses", distance(found.losses, expected.losses) / (1 + norm(expected.losses))},
      {"sum of losses", std::abs(found.gradient.back() - expected.gradient.back()) /
                            (1 + std::abs(expected.gradient.back()))}};
  const auto of = [](const Computed& computed, const Tensor& tensor) {
    return std::span(computed.gradient)
        .subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.count));
  };
  // Gradients of queries and keys of few tokens are differences of nearly equal numbers, which are
  // as large as those of values.
  const LinearLayout& qkv = layout.layers[0].qkv;
  const std::int64_t part = qkv.N / 3 * qkv.K;
  const auto values =
      std::span(expected.gradient)
          .subspan(static_cast<std::size_t>(qkv.weight + 2 * part), static_cast<std::size_t>(part));
  for (const Tensor& tensor : layout.tensors) {
    double size = norm(of(expected, testing::norm_reference(layout, tensor)));
    const bool of_queries_or_keys =
        (tensor.offset >= qkv.weight && tensor.offset < qkv.weight + 2 * part) ||
        (tensor.offset >= qkv.bias && tensor.offset < qkv.bias + 2 * (qkv.N / 3));
    if (of_queries_or_keys) size = std::max(size, norm(values));
    const double error = distance(of(found, tensor), of(expected, tensor));
    // Question answering in one token has a loss and gradients of zero.
    errors[tensor.name] =
        error == 0 ? 0 : error / size / testing::cancellation_factor(layout, tensor);
  }
  return errors;
}

class Lengths : public ::testing::TestWithParam<Variant> {
 protected:
  Lengths() {
    for (const Isa isa : runtime::detect_cpu().isas) {
      const std::string name(runtime::name(isa));
      if (isa != Isa::kRef) {
        fp32_.emplace(name, std::make_unique<LengthsModelOf<float>>(GetParam(), isa));
        bf16_.emplace(name, std::make_unique<LengthsModelOf<bf16>>(GetParam(), isa));
      }
    }
  }
  // The relative error of numbers that were rounded about twenty times (nn_golden_test.cpp).
  static double after_twenty(double rounding_error) { return rounding_error * std::sqrt(20.0); }

  void expect_reference(const std::vector<std::int32_t>& lengths) {
    SCOPED_TRACE(::testing::PrintToString(lengths));
    const Batch batch = make_lengths_batch(GetParam().head, lengths);
    const ParameterLayout& layout = reference_.layout();
    const Computed expected = reference_.compute(batch);
    const Errors rounded = errors_of(layout, bf16_reference_.compute(batch), expected);
    for (const auto& [name, error] : rounded) {
      EXPECT_LE(error, 8 * after_twenty(0x1p-9)) << "reference, bf16: " << name;
    }
    for (const auto& [isa, model] : fp32_) {
      for (const auto& [name, error] : errors_of(layout, model->compute(batch), expected)) {
        // Sums over hundreds of tokens, of which a part cancels; the reference's error is as large.
        EXPECT_LE(error, 32 * after_twenty(0x1p-24)) << isa << ", fp32: " << name;
      }
    }
    for (const auto& [isa, model] : bf16_) {
      for (const auto& [name, error] : errors_of(layout, model->compute(batch), expected)) {
        const double allowed = 3 * std::max(after_twenty(0x1p-9), rounded.at(name));
        EXPECT_LE(error, allowed) << isa << ", bf16: " << name;
      }
    }
  }

  LengthsModelOf<float> reference_{GetParam(), Isa::kRef};
  LengthsModelOf<bf16> bf16_reference_{GetParam(), Isa::kRef};
  std::map<std::string, std::unique_ptr<LengthsModel>> fp32_, bf16_;
};
// Both families and both kinds of rows that a head takes. DistilBERT's classifier has a ReLU, whose
// kink makes a gradient depend on the rounding of inputs near zero.
INSTANTIATE_TEST_SUITE_P(Heads, Lengths,
                         ::testing::Values(Variant{&kBert, Head::kClassification},
                                           Variant{&kDistilBert, Head::kQuestionAnswering}),
                         [](const auto& tested) { return testing::name_of(tested.param); });

TEST_P(Lengths, AloneInABatchAgreeWithTheReference) {
  for (const std::int32_t length : tilewright::testing::covered_lengths()) {
    expect_reference({length});
  }
}

TEST_P(Lengths, PackedWithOthersAgreeWithTheReference) {
  for (const auto& lengths : kPacked) expect_reference(lengths);
}

}  // namespace
}  // namespace tilewright::nn
