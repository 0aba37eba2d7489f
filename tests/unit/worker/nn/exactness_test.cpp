// Tests that a gradient has the same bits for any number of threads, any split of the shards into
// micro-batches or workers, and any other examples in the batch, for every family and head, on
// every instruction set of this CPU and on emulated AMX tiles. Dropout is on.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/unit/worker/kernels/kernel_cases.h"
#include "tests/unit/worker/kernels/model_kernels.h"
#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/cpu.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::nn {
namespace {

using kernels::testing::kernels_of;
using kernels::testing::ModelKernels;
using runtime::Isa;
using testing::Variant;

constexpr std::int64_t kEightShards = 8;

struct Example {
  std::vector<std::int32_t> ids;
  Target target;
};

// n examples of 1 to 20 tokens with the targets of a head.
std::vector<Example> examples(std::int64_t n, Head head) {
  std::vector<Example> all;
  runtime::SplitMix64 random(12345);
  const auto draw = [&](std::uint32_t below) {
    return static_cast<std::int32_t>(random.next() % below);
  };
  for (std::int64_t i = 0; i < n; ++i) {
    Example example;
    example.ids.resize(1 + static_cast<std::size_t>(draw(20)));
    for (auto& id : example.ids) id = draw(50);
    if (head == Head::kQuestionAnswering) {
      const auto length = static_cast<std::uint32_t>(example.ids.size());
      example.target = {.label = draw(length), .last = draw(length)};
    } else {
      const std::int32_t label = draw(3);
      example.target = {.label = label, .value = static_cast<float>(label) - 0.7f};
    }
    all.push_back(example);
  }
  return all;
}

// Shards [begin, end) as one batch whose groups are the largest aligned subtrees.
Batch make_micro_batch(const std::vector<Example>& all, std::int64_t begin, std::int64_t end) {
  Batch batch;
  const auto n = static_cast<std::int64_t>(all.size());
  for (std::int64_t at = begin; at < end;) {
    std::int64_t width = at == 0 ? kEightShards : at & -at;
    while (at + width > end) width /= 2;
    batch.open_group(at);
    for (std::int64_t shard = at; shard < at + width; ++shard) {
      for (std::int64_t i = 0; i < n; ++i) {
        if (i * kEightShards / n != shard) continue;
        const Example& e = all[static_cast<std::size_t>(i)];
        batch.add(e.ids, i % 2 == 0 ? e.ids.size() : 0, e.target, static_cast<std::int32_t>(i));
      }
      batch.close_shard();
    }
    at += width;
  }
  return batch;
}

using Nodes = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;  // first, width

// The sum at node (first, width) of the tree, computed from the nodes that `nodes` holds.
std::vector<float> sum(const Nodes& nodes, std::int64_t first, std::int64_t width) {
  if (const auto node = nodes.find({first, width}); node != nodes.end()) return node->second;
  std::vector<float> left = sum(nodes, first, width / 2);
  const std::vector<float> right = sum(nodes, first + width / 2, width / 2);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

template <typename Element>
struct Fixture {
  Fixture(const Variant& variant, const ModelKernels<Element>& kernels, int threads)
      : config(testing::small_config(variant)),
        pool(threads),
        context{pool, kernels.ops, kernels.parameter_ops},
        model(config, context) {
    for (const Tensor& tensor : model.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      initialise_tensor(drawn, 3, 0.2f, model.parameters().data() + tensor.offset);
    }
    model.pack_weights();
  }
  // `cuts`: the first shard of each micro-batch, then kEightShards.
  std::vector<float> gradient(const std::vector<Example>& all,
                              const std::vector<std::int64_t>& cuts) {
    TouchedRows touched(config.vocab_size);
    for (const Example& e : all) touched.mark(e.ids);
    touched.finish();
    Nodes nodes;
    for (std::size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
      const Batch batch = make_micro_batch(all, cuts[cut], cuts[cut + 1]);
      model.reserve({batch.T() + 1, batch.B() + 1, 32}, kEightShards);
      GradientSink sink;
      for (const ShardGroup& group : batch.groups) {
        const auto width = static_cast<std::int64_t>(group.token_offsets.size()) - 1;
        auto& node = nodes[{group.first_shard, width}];
        node.assign(static_cast<std::size_t>(model.gradient_count(touched.R())), std::nanf(""));
        sink.groups.push_back(node.data());
      }
      const DropoutKey key{7, 3};
      model.forward(batch, key, true);
      model.backward(batch, key, 1.0f / static_cast<float>(all.size()), touched, sink);
    }
    return sum(nodes, 0, kEightShards);
  }

  EncoderConfig config;
  runtime::ThreadPool pool;
  Context<Element> context;  // refers to the kernels, which the test keeps
  Model<Element> model;
};

// The gradient of n examples has the same bits for any number of threads and micro-batches.
template <typename Element>
void expect_same_bits(const Variant& variant, const ModelKernels<Element>& kernels,
                      std::int64_t n) {
  const std::vector<Example> all = examples(n, variant.head);
  const std::vector<float> reference = Fixture<Element>(variant, kernels, 1).gradient(all, {0, 8});
  double size = 0;
  for (const float x : reference) size += std::abs(x);
  ASSERT_GT(size, 0.1);
  const std::vector<std::vector<std::int64_t>> splits = {
      {0, 8},           // one worker
      {0, 4, 8},        // two workers
      {0, 3, 6, 8},     // three workers with 2, 2 and 1 subtrees
      {0, 2, 4, 6, 8},  // four workers
      {0, 1, 2, 3, 4, 5, 6, 7, 8}};
  for (const int threads : {1, 2, 3}) {
    Fixture<Element> fixture(variant, kernels, threads);
    for (const auto& cuts : splits) {
      const std::vector<float> gradient = fixture.gradient(all, cuts);
      ASSERT_EQ(gradient.size(), reference.size());
      // memcmp also distinguishes -0 from 0: the bits of the weights must not differ either.
      EXPECT_EQ(std::memcmp(gradient.data(), reference.data(), gradient.size() * 4), 0)
          << threads << " threads, " << cuts.size() - 1 << " micro-batches, " << n << " examples";
    }
  }
}

class Exactness : public ::testing::TestWithParam<testing::IsaCase> {
 protected:
  template <typename Element>
  void check(std::int64_t n) {
    expect_same_bits(GetParam().variant, kernels_of<Element>(GetParam().isa), n);
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Exactness, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return testing::case_name(tested.param); });

TEST_P(Exactness, GradientsInBf16HaveTheSameBitsForAnySplit) { check<bf16>(21); }
TEST_P(Exactness, GradientsInFp32HaveTheSameBitsForAnySplit) { check<float>(21); }
TEST_P(Exactness, EmptyShardsDoNotChangeTheBits) { check<bf16>(5); }

TEST_P(Exactness, AnUpdateHasTheSameBitsForAnyNumberOfThreads) {
  const auto& [isa, variant] = GetParam();
  const std::vector<Example> all = examples(16, variant.head);
  TouchedRows touched(testing::small_config(variant).vocab_size);
  for (const Example& e : all) touched.mark(e.ids);
  touched.finish();
  const auto kernels = kernels_of<bf16>(isa);
  std::vector<float> reference;
  for (const int threads : {1, 2, 3}) {
    Fixture<bf16> fixture(variant, kernels, threads);
    Optimizer<bf16> optimizer(fixture.model, fixture.context, {});
    for (int step = 1; step <= 2; ++step) {
      const std::vector<float> gradient = fixture.gradient(all, {0, 8});
      optimizer.step(step, 1e-2f, gradient, touched);
    }
    const std::vector<float> values(fixture.model.parameters().begin(),
                                    fixture.model.parameters().end());
    if (reference.empty()) reference = values;
    EXPECT_EQ(std::memcmp(values.data(), reference.data(), values.size() * 4), 0);
  }
}

class ExactnessOnEmulatedAmx : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!kernels::testing::cpu_supports(Isa::kAvx512Bf16)) {
      GTEST_SKIP() << "this CPU has no avx512_bf16";
    }
  }
};
// The emulator is slow, so only one head with a row for each example and one with a row for each
// token.
INSTANTIATE_TEST_SUITE_P(Heads, ExactnessOnEmulatedAmx,
                         ::testing::Values(Variant{&kBert, Head::kClassification},
                                           Variant{&kBert, Head::kQuestionAnswering}),
                         [](const auto& tested) { return testing::name_of(tested.param); });

TEST_P(ExactnessOnEmulatedAmx, GradientsHaveTheSameBitsForAnySplit) {
  expect_same_bits(GetParam(), kernels::testing::kernels_of_emulated_amx(), 21);
}

}  // namespace
}  // namespace tilewright::nn
