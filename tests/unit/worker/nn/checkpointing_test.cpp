// Tests that gradient checkpointing changes the memory of a training and no bit of its gradients,
// for every family, head and data type. Dropout is on.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/model.h"

namespace tilewright::nn {
namespace {

using testing::IsaCase;

constexpr std::int64_t kTwoShards = 2;

// 9 examples of 2 to 31 tokens in two shards.
Batch make_checkpointing_batch() {
  Batch batch;
  batch.open_group(0);
  for (std::int32_t example = 0; example < 9; ++example) {
    std::vector<std::int32_t> ids;
    const std::int32_t length = 2 + 11 * example % 30;
    ids.reserve(static_cast<std::size_t>(length));
    for (std::int32_t i = 0; i < length; ++i) ids.push_back((7 * i + 13 * example) % 50);
    batch.add(ids, example % 2 == 0 ? ids.size() : 0,
              {.label = example % 2, .last = length - 1, .value = 0.3f}, example);
    if (example == 4) batch.close_shard();
  }
  batch.close_shard();
  return batch;
}

EncoderConfig make_config(const testing::Variant& variant, int layers, bool checkpointing) {
  EncoderConfig config = testing::small_config(variant);
  config.num_hidden_layers = layers;
  config.gradient_checkpointing = checkpointing;
  return config;
}

class Checkpointing : public ::testing::TestWithParam<IsaCase> {
 protected:
  // The gradients of two steps.
  template <typename Element>
  std::vector<float> gradients(int layers, bool checkpointing) const {
    const auto& [isa, variant] = GetParam();
    const EncoderConfig config = make_config(variant, layers, checkpointing);
    runtime::ThreadPool pool(2);
    const auto ops = kernels::make_ops<Element>(isa);
    const auto parameter_ops = kernels::make_parameter_ops(isa);
    Model<Element> model(config, {pool, ops, parameter_ops});
    for (const Tensor& tensor : model.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      initialise_tensor(drawn, 3, 0.2f, model.parameters().data() + tensor.offset);
    }
    model.pack_weights();
    const Batch batch = make_checkpointing_batch();
    TouchedRows touched(config.vocab_size);
    touched.mark(batch.ids);
    touched.finish();
    model.reserve(batch.limits(), kTwoShards);
    const auto count = static_cast<std::size_t>(model.gradient_count(touched.R()));
    std::vector<float> all(2 * count, std::nanf(""));
    for (std::uint32_t step = 0; step < 2; ++step) {
      const DropoutKey key{7, step};
      GradientSink sink;
      sink.groups = {all.data() + step * count};
      model.forward(batch, key, true);
      model.backward(batch, key, 1.0f / static_cast<float>(batch.B()), touched, sink);
    }
    return all;
  }
  template <typename Element>
  void check() const {
    for (const int layers : {1, 2, 4}) {
      const std::vector<float> expected = gradients<Element>(layers, false);
      const std::vector<float> found = gradients<Element>(layers, true);
      double size = 0;
      for (const float x : expected) size += std::abs(x);
      ASSERT_GT(size, 0.1);  // and not NaN
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
          << layers << " layers";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Checkpointing, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return testing::case_name(tested.param); });

TEST_P(Checkpointing, GradientsInBf16HaveTheSameBits) { check<bf16>(); }
TEST_P(Checkpointing, GradientsInFp32HaveTheSameBits) { check<float>(); }

// T = 64 and H = 48 make each array a multiple of the arena's alignment.
TEST(CheckpointingMemory, GrowsWithEachLayerByItsOutputAlone) {
  constexpr std::int64_t kTokens = 64;
  runtime::ThreadPool pool(1);
  const auto ops = kernels::make_ops<bf16>(runtime::Isa::kRef);
  const auto parameter_ops = kernels::make_parameter_ops(runtime::Isa::kRef);
  for (const testing::Variant& variant : testing::all_variants()) {
    const auto bytes = [&](int layers, bool checkpointing) {
      return Model<bf16>::activation_bytes(make_config(variant, layers, checkpointing),
                                           {pool, ops, parameter_ops}, {kTokens, 4, 32}, kTwoShards,
                                           Use::kTraining);
    };
    // The fp32 sum with its two statistics and the bf16 output.
    EXPECT_EQ(bytes(5, true) - bytes(4, true), kTokens * (48 * 4 + 2 * 4 + 48 * 2));
    EXPECT_LT(bytes(5, true), bytes(5, false));
  }
}

}  // namespace
}  // namespace tilewright::nn
