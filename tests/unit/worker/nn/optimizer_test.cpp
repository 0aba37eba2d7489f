// Tests which rows of the word embeddings a step of the optimizer changes.
#include "worker/nn/optimizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/worker/nn/variants.h"

namespace tilewright::nn {
namespace {

class OptimizerTest : public ::testing::Test {
 protected:
  using Rows = std::vector<std::vector<float>>;

  OptimizerTest() {
    for (const Tensor& tensor : model_.layout().tensors) {
      initialise_tensor(tensor, 3, 0.2f, model_.parameters().data() + tensor.offset);
    }
    model_.pack_weights();
  }
  std::int64_t H() const { return model_.config().hidden_size; }
  std::int64_t word_offset(std::int64_t word) const {
    return model_.layout().word_embeddings + word * H();
  }
  Rows words() const {
    Rows rows;
    for (std::int64_t word = 0; word < model_.config().vocab_size; ++word) {
      const float* row = model_.parameters().data() + word_offset(word);
      rows.emplace_back(row, row + H());
    }
    return rows;
  }
  // A step whose batch has the words `ids`, with a constant gradient.
  void step(Optimizer<float>& optimizer, std::int64_t number, const std::vector<int>& ids) {
    TouchedRows touched(model_.config().vocab_size);
    touched.mark(ids);
    touched.finish();
    const std::vector<float> gradient(static_cast<std::size_t>(model_.gradient_count(touched.R())),
                                      0.01f);
    optimizer.step(number, 1e-3f, gradient, touched);
  }
  static std::vector<int> changed(const Rows& before, const Rows& after) {
    std::vector<int> rows;
    for (std::size_t row = 0; row < before.size(); ++row) {
      if (before[row] != after[row]) rows.push_back(static_cast<int>(row));
    }
    return rows;
  }

  runtime::ThreadPool pool_{2};
  kernels::Ops<float> ops_ = kernels::make_ops<float>(runtime::Isa::kRef);
  kernels::ParameterOps parameter_ops_ = kernels::make_parameter_ops(runtime::Isa::kRef);
  Context<float> context_{pool_, ops_, parameter_ops_};
  Model<float> model_{testing::small_config(testing::all_variants().front()), context_};
  AdamWSettings settings_;
};

TEST_F(OptimizerTest, ChangesTheWordsOfTheBatchAndThoseOfEarlierBatches) {
  Optimizer<float> optimizer(model_, context_, settings_);
  const Rows start = words();
  step(optimizer, 1, {3, 4, 17});
  const Rows first = words();
  EXPECT_EQ(changed(start, first), (std::vector<int>{3, 4, 17}));
  step(optimizer, 2, {0, 4, 49});
  EXPECT_EQ(changed(first, words()), (std::vector<int>{0, 3, 4, 17, 49}));
}

TEST_F(OptimizerTest, ChangesWordsWhoseMomentsWereRestored) {
  Optimizer<float> optimizer(model_, context_, settings_);
  step(optimizer, 1, {3});
  const Rows before = words();
  optimizer.exp_avg()[static_cast<std::size_t>(word_offset(8) + H() - 1)] = 0.5f;
  step(optimizer, 2, {3});
  EXPECT_EQ(changed(before, words()), (std::vector<int>{3, 8}));
  optimizer.clear();
  const Rows cleared = words();
  step(optimizer, 1, {5});
  EXPECT_EQ(changed(cleared, words()), (std::vector<int>{5}));
}

TEST_F(OptimizerTest, DecaysAllWords) {
  settings_.weight_decay = 0.1f;
  Optimizer<float> optimizer(model_, context_, settings_);
  const Rows before = words();
  step(optimizer, 1, {3});
  EXPECT_EQ(changed(before, words()).size(), before.size());
}

}  // namespace
}  // namespace tilewright::nn
