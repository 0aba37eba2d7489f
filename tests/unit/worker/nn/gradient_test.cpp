// Compares gradients with dropout with differences of the loss along random directions. The golden
// tests compare them with PyTorch, whose dropout draws other numbers, without dropout only.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/model.h"

namespace tilewright::nn {
namespace {

constexpr std::int32_t kBatchLengths[] = {5, 1, 17, 9};

Batch make_gradient_batch(Head head) {
  Batch batch;
  batch.open_group(0);
  for (std::int32_t b = 0; b < 4; ++b) testing::add_example(batch, head, b, kBatchLengths[b]);
  batch.close_shard();
  return batch;
}

class DropoutGradient : public ::testing::TestWithParam<testing::Variant> {
 protected:
  DropoutGradient()
      : config_(testing::small_config(GetParam())),
        model_(config_, context_),
        batch_(make_gradient_batch(config_.head)),
        touched_(config_.vocab_size) {
    for (const Tensor& tensor : model_.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      initialise_tensor(drawn, 3, 0.2f, model_.parameters().data() + tensor.offset);
    }
    // A step across the kink of ReLU would change the derivative: inputs are kept away from zero.
    if (config_.family->head_activation == HeadActivation::kRelu) {
      const LinearLayout& dense = model_.layout().head_dense;
      for (std::int64_t i = 0; i < dense.N; ++i) {
        model_.parameters()[static_cast<std::size_t>(dense.bias + i)] = i % 2 == 0 ? 3.0f : -3.0f;
      }
    }
    for (std::int32_t id = 0; id < 50; ++id) touched_.mark(std::span(&id, 1));
    touched_.finish();
    model_.reserve(batch_.limits(), 1);
  }
  double loss() {
    model_.pack_weights();
    model_.forward(batch_, key_, true);
    double sum = 0;
    for (const float each : model_.losses(batch_)) sum += each;
    return sum;
  }
  std::vector<float> gradient() {
    std::vector<float> values(static_cast<std::size_t>(model_.gradient_count(touched_.R())));
    GradientSink sink;
    sink.groups = {values.data()};
    loss();
    model_.backward(batch_, key_, 1.0f, touched_, sink);
    return values;
  }

  EncoderConfig config_;
  runtime::ThreadPool pool_{2};
  kernels::Ops<float> ops_ = kernels::make_ops<float>(runtime::Isa::kRef);
  kernels::ParameterOps parameter_ops_ = kernels::make_parameter_ops(runtime::Isa::kRef);
  Context<float> context_{pool_, ops_, parameter_ops_};
  Model<float> model_;
  Batch batch_;
  TouchedRows touched_;
  DropoutKey key_{7, 3};
};
INSTANTIATE_TEST_SUITE_P(EveryHead, DropoutGradient, ::testing::ValuesIn(testing::all_variants()),
                         [](const auto& tested) { return testing::name_of(tested.param); });

// All 50 word rows occur in touched_, so a gradient has the layout of the parameters.
TEST_P(DropoutGradient, AgreesWithDifferencesOfTheLoss) {
  const std::vector<float> exact = gradient();
  const std::vector<float> start(model_.parameters().begin(), model_.parameters().end());
  ASSERT_EQ(exact.size(), start.size() + 1);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const Tensor& tensor : model_.layout().tensors) {
    // A direction with a part along the gradient, so that the derivative is not near zero.
    std::vector<double> direction(static_cast<std::size_t>(tensor.count));
    double size = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      const double g = exact[static_cast<std::size_t>(tensor.offset) + i];
      size += g * g;
    }
    size = std::sqrt(size);
    // Exact zeros, see padding_test.cpp; types and positions without a token are zero, too.
    if (size < 1e-5) continue;
    double derivative = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      const double g = exact[static_cast<std::size_t>(tensor.offset) + i];
      direction[i] = g / size + 0.5 * normal(random) / std::sqrt(static_cast<double>(tensor.count));
      derivative += g * direction[i];
    }
    const auto loss_at = [&](double step) {
      for (std::size_t i = 0; i < direction.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(tensor.offset) + i;
        model_.parameters()[at] = static_cast<float>(start[at] + step * direction[i]);
      }
      return loss();
    };
    // Five points: the error of the difference is of the fourth order in the step, and that of the
    // losses, about 1e-6, is divided by it.
    const double h = 0.01;
    const double found =
        (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
    loss_at(0);
    EXPECT_NEAR(found, derivative, 0.01 * std::abs(derivative) + 5e-4) << tensor.name;
  }
}

}  // namespace
}  // namespace tilewright::nn
