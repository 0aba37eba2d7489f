// Tests that a checkpoint holds the state of its step although AdamW continues while it is written.
#include "worker/checkpoint/state_copy.h"

#include "tests/unit/worker/checkpoint/checkpoint_testing.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/background_task.h"

namespace tilewright::checkpoint {
namespace {

nn::EncoderConfig small_config() {
  nn::EncoderConfig config;
  config.vocab_size = 64;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 64;
  config.max_position_embeddings = 16;
  config.num_labels = 2;
  return config;
}

// A model whose optimizer runs on several threads.
class StateCopyTest : public ::testing::Test {
 protected:
  StateCopyTest() : gradient_(static_cast<std::size_t>(model_.gradient_count(8))) {
    const std::int32_t ids[] = {1, 2, 3, 5, 8, 13, 21, 34};
    touched_.mark(ids);
    touched_.finish();
    for (std::size_t i = 0; i < gradient_.size(); ++i) {
      gradient_[i] = 1e-3f * static_cast<float>(i % 17) - 5e-3f;
    }
    for (const nn::Tensor& tensor : model_.layout().tensors) {
      nn::initialise_tensor(tensor, 1, 0.02f, model_.parameters().data() + tensor.offset);
    }
    model_.pack_weights();
    update();
  }
  void update() { optimizer_.step(++step_, 1e-3f, gradient_, touched_); }
  static std::vector<float> values(std::span<const float> span) {
    return {span.begin(), span.end()};
  }
  void take(StateCopy& copy) {
    copy.take({model_.parameters(), optimizer_.exp_avg(), optimizer_.exp_avg_sq()}, pool_,
              parameter_ops_);
  }
  std::size_t elements() const { return model_.parameters().size(); }

  testing::TemporaryDirectory directory_;
  runtime::ThreadPool pool_{3};
  kernels::Ops<float> ops_ = kernels::make_ops<float>(runtime::Isa::kRef);
  kernels::ParameterOps parameter_ops_ = kernels::make_parameter_ops(runtime::Isa::kRef);
  nn::Context<float> context_{pool_, ops_, parameter_ops_};
  nn::Model<float> model_{small_config(), context_};
  nn::Optimizer<float> optimizer_{model_, context_, {}};
  nn::TouchedRows touched_{small_config().vocab_size};
  std::vector<float> gradient_;
  std::int64_t step_ = 0;
};

TEST_F(StateCopyTest, IsWrittenWhileTheOptimizerContinues) {
  const OutputWriter output = own(directory_.path() / "output");
  StateCopy copy(elements());
  runtime::BackgroundTask task;
  for (int round = 0; round < 3; ++round) {
    const std::int64_t step = step_;
    const std::vector<float> weights = values(model_.parameters());
    const std::vector<float> exp_avg = values(optimizer_.exp_avg());
    const std::vector<float> exp_avg_sq = values(optimizer_.exp_avg_sq());
    take(copy);
    task.start([&] {
      CheckpointContent content;
      content.state.global_step = step;
      content.tensors = copy.tensors(model_.layout());
      write_checkpoint(output, content);
    });
    do update();
    while (!task.wait(std::chrono::seconds(0)));
    EXPECT_NE(values(model_.parameters()), weights);

    StateCopy loaded(elements());
    const TrainingTensors into = loaded.tensors(model_.layout());
    EXPECT_EQ(
        load_checkpoint(output.directory() / checkpoint_name(step), nullptr, into).global_step,
        step);
    const auto flat = [&](const std::vector<TensorView>& views) {
      return std::vector<float>(views.front().data, views.front().data + elements());
    };
    EXPECT_EQ(flat(into.weights), weights);
    EXPECT_EQ(flat(into.exp_avg), exp_avg);
    EXPECT_EQ(flat(into.exp_avg_sq), exp_avg_sq);
  }
}

TEST_F(StateCopyTest, IsCompleteAlthoughItsPagesWereBeingTouched) {
  StateCopy copy(elements());
  runtime::BackgroundTask task;
  task.start([&] { copy.touch_pages(); });
  copy.stop_touching();
  ASSERT_TRUE(task.wait(std::chrono::seconds(60)));
  take(copy);
  const float* const weights = copy.tensors(model_.layout()).weights.front().data;
  EXPECT_EQ(std::vector<float>(weights, weights + elements()), values(model_.parameters()));
}

}  // namespace
}  // namespace tilewright::checkpoint
