// Tests that a batch padded with [PAD] gives the results of a packed batch and computes more rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/unit/worker/nn/variants.h"
#include "worker/nn/flops.h"
#include "worker/nn/model.h"
#include "worker/runtime/cpu.h"

namespace tilewright::nn {
namespace {

using runtime::Isa;
using testing::Variant;

constexpr std::int64_t kFourShards = 4;
constexpr std::int64_t kPadded = 29;  // tokens per padded example; not a multiple of a vector
constexpr std::int32_t kPad = 11;     // an id that also occurs in the examples

constexpr std::int32_t kLengths[] = {5, 1, 17, 16, 29, 2, 8, 23};

Batch make_batch(const Padding& padding, Head head = Head::kClassification) {
  Batch batch;
  batch.open_group(0);
  for (std::int32_t b = 0; b < 8; ++b) {
    testing::add_example(batch, head, b, kLengths[b], padding);
    if (b % 2 == 1) batch.close_shard();
  }
  return batch;
}

template <typename Element>
struct Padded {
  std::vector<Element> logits;
  std::vector<float> gradient;
  TokenCounters counters;
};

template <typename Element>
class PaddingModel {
 public:
  PaddingModel(const Variant& variant, Isa isa, std::int32_t padding_idx = -1)
      : config_(with_padding_idx(testing::small_config(variant), padding_idx)),
        ops_(kernels::make_ops<Element>(isa)),
        parameter_ops_(kernels::make_parameter_ops(isa)),
        context_{pool_, ops_, parameter_ops_},
        model_(config_, context_) {
    for (const Tensor& tensor : model_.layout().tensors) {
      Tensor drawn = tensor;
      drawn.decays = true;  // draw biases and norms too, so that none of them is zero
      initialise_tensor(drawn, 3, 0.2f, model_.parameters().data() + tensor.offset);
    }
    model_.pack_weights();
  }
  Padded<Element> compute(const Batch& batch) {
    TouchedRows touched(config_.vocab_size);
    for (std::int32_t id = 0; id < 50; ++id) touched.mark(std::span(&id, 1));
    touched.finish();
    model_.reserve(batch.limits(), kFourShards);
    const TokenCounters before = model_.counters();
    Padded<Element> computed;
    const DropoutKey key{7, 3};
    const auto logits = model_.forward(batch, key, true);
    computed.logits = without_padding(batch, logits);
    computed.gradient.assign(static_cast<std::size_t>(model_.gradient_count(touched.R())),
                             std::nanf(""));
    GradientSink sink;
    sink.groups = {computed.gradient.data()};
    model_.backward(batch, key, 0.125f, touched, sink);
    computed.counters = {model_.counters().forward - before.forward,
                         model_.counters().backward - before.backward};
    return computed;
  }
  const ParameterLayout& layout() const { return model_.layout(); }
  std::int64_t hidden_size() const { return config_.hidden_size; }

 private:
  static EncoderConfig with_padding_idx(EncoderConfig config, std::int32_t padding_idx) {
    config.padding_idx = padding_idx;
    return config;
  }
  // Question answering has logits of padded positions, too.
  std::vector<Element> without_padding(const Batch& batch, std::span<const Element> logits) const {
    if (config_.head != Head::kQuestionAnswering) return {logits.begin(), logits.end()};
    std::vector<Element> kept;
    for (std::size_t b = 0; b < batch.lengths.size(); ++b) {
      const auto row = logits.begin() + 2 * batch.cu_seqlens[b];
      kept.insert(kept.end(), row, row + 2 * batch.lengths[b]);
    }
    return kept;
  }

  EncoderConfig config_;
  runtime::ThreadPool pool_{2};
  kernels::Ops<Element> ops_;
  kernels::ParameterOps parameter_ops_;
  Context<Element> context_;
  Model<Element> model_;
};

double norm(const float* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

class PaddedBatch : public ::testing::TestWithParam<testing::IsaCase> {
 protected:
  template <typename Element>
  void check() {
    const auto& [isa, variant] = GetParam();
    const Batch packed = make_batch({}, variant.head);
    const Batch padded = make_batch({kPadded, kPad}, variant.head);
    PaddingModel<Element> model(variant, isa);
    const Padded<Element> expected = model.compute(packed);
    const Padded<Element> found = model.compute(padded);

    EXPECT_EQ(expected.counters.forward, 101);
    EXPECT_EQ(expected.counters.backward, 101);
    EXPECT_EQ(found.counters.forward, 8 * kPadded);
    EXPECT_EQ(found.counters.backward, 8 * kPadded);

    // Rows depend on each other only in attention, where a padded key has weight zero and adds an
    // exact zero. So the logits must have the same bits.
    ASSERT_EQ(found.logits.size(), expected.logits.size());
    EXPECT_EQ(std::memcmp(found.logits.data(), expected.logits.data(),
                          expected.logits.size() * sizeof(Element)),
              0);
    EXPECT_EQ(found.gradient.back(), expected.gradient.back()) << "loss";

    // Gradients of parameters sum the same terms and exact zeros, but kernels group rows by their
    // index. Two orders of summing n terms in fp32 differ by at most 2 n u times the sum of the
    // magnitudes. With random signs that sum is about sqrt(n) times the result; n = 101 tokens.
    const double allowed = 2 * std::pow(101, 1.5) * 0x1p-24;
    for (const Tensor& tensor : model.layout().tensors) {
      const float* want = expected.gradient.data() + tensor.offset;
      std::vector<float> difference(found.gradient.begin() + tensor.offset,
                                    found.gradient.begin() + tensor.offset + tensor.count);
      for (std::int64_t i = 0; i < tensor.count; ++i) {
        difference[static_cast<std::size_t>(i)] -= want[i];
      }
      // A softmax does not change with a constant, so some exact gradients are zero: those of key
      // biases, and with question answering those of the last bias and, without dropout after it,
      // of the norm before it. Their errors are measured against the tensors before them: the query
      // bias and the weights.
      const bool answers = variant.head == Head::kQuestionAnswering;
      const bool same_size =
          tensor.name.ends_with("key.bias") || tensor.name.ends_with("k_lin.bias") ||
          (answers && tensor.name == "bert.encoder.layer.1.output.LayerNorm.bias");
      const bool last = tensor.name == "qa_outputs.bias";
      const auto before = same_size ? tensor.count : last ? 48 * tensor.count : 0;
      const double size = norm(want - before, before > 0 ? before : tensor.count);
      EXPECT_GT(size, 1e-4) << tensor.name;
      EXPECT_LE(norm(difference.data(), tensor.count), allowed * size) << tensor.name;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, PaddedBatch, ::testing::ValuesIn(testing::all_cases()),
                         [](const auto& tested) { return testing::case_name(tested.param); });

TEST_P(PaddedBatch, ComputesMoreRowsAndTheSameResultsInFp32) { check<float>(); }
TEST_P(PaddedBatch, ComputesMoreRowsAndTheSameResultsInBf16) { check<bf16>(); }

// Whether the row is of the padding or of an example in which the text has [PAD].
TEST(Padding, TheEmbeddingOfPaddingIdxGetsNoGradient) {
  for (const Padding& padding : {Padding{}, Padding{kPadded, kPad}}) {
    const Batch batch = make_batch(padding);
    std::vector<std::vector<float>> rows;
    for (const std::int32_t padding_idx : {-1, kPad}) {
      const Variant variant = testing::all_variants().front();
      PaddingModel<float> model(variant, Isa::kRef, padding_idx);
      const Padded<float> computed = model.compute(batch);
      const float* row = computed.gradient.data() + model.layout().word_embeddings +
                         std::int64_t{kPad} * model.hidden_size();
      rows.emplace_back(row, row + model.hidden_size());
    }
    EXPECT_GT(norm(rows[0].data(), std::ssize(rows[0])), 0) << "the examples have the id";
    EXPECT_EQ(norm(rows[1].data(), std::ssize(rows[1])), 0);
  }
}

TEST(Padding, IsNotCountedInFlops) {
  for (const Variant& variant : testing::all_variants()) {
    const EncoderConfig config = testing::small_config(variant);
    EXPECT_EQ(forward_flops(config, make_batch({kPadded, kPad})),
              forward_flops(config, make_batch({})));
  }
}

TEST(Padding, DoesNotChangeLongerExamples) {
  const Batch batch = make_batch({8, kPad});
  EXPECT_EQ(batch.cu_seqlens, (std::vector<std::int32_t>{0, 8, 16, 33, 49, 78, 86, 94, 117}));
  EXPECT_EQ(batch.lengths, (std::vector<std::int32_t>{5, 1, 17, 16, 29, 2, 8, 23}));
  EXPECT_EQ(batch.max_seqlen, 29);
  EXPECT_EQ(batch.ids[8 + 1], kPad);
  EXPECT_EQ(batch.types[8 + 1], 0);
  EXPECT_EQ(batch.positions[8 + 1], 1);
}

}  // namespace
}  // namespace tilewright::nn
