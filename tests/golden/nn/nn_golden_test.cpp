// Compares loss, every gradient and ten AdamW steps of every family and head with PyTorch
// (tests/golden/write_goldens.py), in fp32 and bf16, on every instruction set of this CPU, and the
// gradients in bf16 on emulated AMX tiles.
//
// Tolerances. The golden file contains, for each tensor, PyTorch's own error in that dtype relative
// to the exact gradient. The error allowed here is kSlack times PyTorch's error, and at least the
// rounding error times the square root of the number of roundings: about ten per layer and
// direction.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "tests/support/paths.h"
#include "tests/support/read_floats.h"
#include "tests/unit/worker/kernels/kernel_cases.h"
#include "tests/unit/worker/kernels/model_kernels.h"
#include "tests/unit/worker/nn/zero_gradients.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::nn {
namespace {

using checkpoint::SafetensorsFile;
using kernels::testing::kernels_of;
using kernels::testing::ModelKernels;
using runtime::Isa;
using testing::cancellation_factor;
using testing::norm_reference;

constexpr double kSlack = 3.0;

// fp32: the unit round-off. bf16: half the unit round-off 2^-8, which is the stricter bound.
template <typename Element>
constexpr double rounding_error() {
  return std::is_same_v<Element, float> ? 0x1p-24 : 0x1p-9;
}
template <typename Element>
const char* dtype() {
  return std::is_same_v<Element, float> ? "fp32." : "bf16.";
}
template <typename Element>
double rounding_bound(const EncoderConfig& config) {
  return rounding_error<Element>() *
         std::sqrt(20.0 * static_cast<double>(config.num_hidden_layers));
}

EncoderConfig minilm_config() {
  EncoderConfig config;
  config.hidden_size = 384;
  config.num_hidden_layers = 6;
  config.intermediate_size = 1536;
  return config;
}

// The elements of an I32 tensor, or of an I64 tensor.
std::vector<std::int64_t> read_integers(const SafetensorsFile& file, const std::string& name) {
  const checkpoint::Tensor* tensor = file.find(name);
  TW_CHECK(tensor != nullptr, "{}: {} is missing", file.path().string(), name);
  const auto read = [&]<typename Integer>(Integer) {
    std::vector<Integer> values(static_cast<std::size_t>(tensor->size()));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  if (tensor->dtype == checkpoint::DType::kI32) return read(std::int32_t{});
  TW_CHECK(tensor->dtype == checkpoint::DType::kI64, "{} is not of integers", name);
  return read(std::int64_t{});
}

std::vector<Target> read_targets(const SafetensorsFile& file, std::int64_t examples) {
  std::vector<Target> targets(static_cast<std::size_t>(examples));
  const auto fill = [&](const char* name, std::int32_t Target::*field) {
    if (file.find(name) == nullptr) return;
    const std::vector<std::int64_t> values = read_integers(file, name);
    for (std::size_t b = 0; b < targets.size(); ++b) {
      targets[b].*field = static_cast<std::int32_t>(values[b]);
    }
  };
  fill("labels", &Target::label);
  fill("last_labels", &Target::last);
  if (file.find("values") != nullptr) {
    const std::vector<float> values = read_floats(file, "values", {examples});
    for (std::size_t b = 0; b < targets.size(); ++b) targets[b].value = values[b];
  }
  return targets;
}

// That of the small models has id 0.
Padding read_padding(const SafetensorsFile& file) {
  if (file.find("padded_length") == nullptr) return {};
  return {read_integers(file, "padded_length").front(), 0, true};
}

// A model and the golden batch, split into shards and groups of shards.
template <typename Element>
struct Run {
  Run(EncoderConfig config, const ModelKernels<Element>& kernels_in, int threads,
      const SafetensorsFile& expected, std::int64_t group_shards)
      : pool(threads),
        kernels(kernels_in),
        context{pool, kernels.ops, kernels.parameter_ops},
        model(without_dropout(config), context),
        touched(config.vocab_size) {
    const auto ids = read_integers(expected, "input_ids");
    const auto types = read_integers(expected, "token_type_ids");
    const auto offsets = read_integers(expected, "cu_seqlens");
    const auto n = static_cast<std::int64_t>(offsets.size()) - 1;
    const std::vector<Target> targets = read_targets(expected, n);
    const Padding padding = read_padding(expected);
    for (std::int64_t shard = 0; shard < kShards; ++shard) {
      if (shard % group_shards == 0) batch.open_group(shard);
      for (std::int64_t b = 0; b < n; ++b) {
        if (b * kShards / n != shard) continue;
        const auto at = static_cast<std::size_t>(b);
        const auto of_example = [&](const auto& list) {
          return std::vector<std::int32_t>(list.begin() + offsets[at],
                                           list.begin() + offsets[at + 1]);
        };
        const auto zeros = std::ranges::count(of_example(types), 0);
        batch.add(of_example(ids), static_cast<std::size_t>(zeros), targets[at],
                  static_cast<std::int32_t>(b), padding);
      }
      batch.close_shard();
    }
    touched.mark(batch.ids);
    touched.finish();
    model.reserve(batch.limits(), kShards);
  }
  static EncoderConfig without_dropout(EncoderConfig config) {
    config.hidden_dropout_prob = 0;
    config.attention_probs_dropout_prob = 0;
    config.classifier_dropout = 0;
    config.qa_dropout = 0;
    return config;
  }
  // The gradient of the whole batch: groups are added pairwise, as in the all-reduce.
  std::vector<float> gradient() {
    const auto count = static_cast<std::size_t>(model.gradient_count(touched.R()));
    std::vector<std::vector<float>> parts(batch.groups.size(),
                                          std::vector<float>(count, std::nanf("")));
    GradientSink sink;
    for (auto& part : parts) sink.groups.push_back(part.data());
    std::int64_t final = 0;
    sink.on_gradient_ready = [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin, final);
      final = end;
    };
    model.forward(batch, key, true);
    model.backward(batch, key, 1.0f / static_cast<float>(batch.B()), touched, sink);
    EXPECT_EQ(final, static_cast<std::int64_t>(count));
    for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
      for (std::size_t i = 0; i < parts.size() / 2; ++i) {
        for (std::size_t j = 0; j < count; ++j) parts[i][j] = parts[2 * i][j] + parts[2 * i + 1][j];
      }
    }
    return parts[0];
  }
  // A tensor's gradient with all rows.
  std::vector<float> dense(const Tensor& tensor, const std::vector<float>& gradient) const {
    const auto offset = static_cast<std::size_t>(tensor.offset);
    if (tensor.offset < model.layout().word_embeddings) {
      return {gradient.begin() + static_cast<std::ptrdiff_t>(offset),
              gradient.begin() + static_cast<std::ptrdiff_t>(offset) + tensor.count};
    }
    std::vector<float> all(static_cast<std::size_t>(tensor.count), 0.0f);
    const auto H = static_cast<std::size_t>(model.config().hidden_size);
    for (std::size_t row = 0; row < touched.ids.size(); ++row) {
      const auto id = static_cast<std::size_t>(touched.ids[row]);
      std::copy_n(gradient.begin() + static_cast<std::ptrdiff_t>(offset + row * H), H,
                  all.begin() + static_cast<std::ptrdiff_t>(id * H));
    }
    return all;
  }

  static constexpr std::int64_t kShards = 4;
  runtime::ThreadPool pool;
  ModelKernels<Element> kernels;
  Context<Element> context;
  Model<Element> model;
  Batch batch;
  TouchedRows touched;
  DropoutKey key;
};

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}
double distance(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
  }
  return std::sqrt(sum);
}
double scalar(const SafetensorsFile& file, const std::string& name) {
  return read_floats(file, name, {1})[0];
}
template <typename Element>
void load(Model<Element>& model, const SafetensorsFile& weights,
          const SafetensorsFile* head = nullptr) {
  for (const Tensor& tensor : model.layout().tensors) {
    std::span<float> out = model.parameters().subspan(static_cast<std::size_t>(tensor.offset),
                                                      static_cast<std::size_t>(tensor.count));
    const bool is_in_head = head != nullptr && head->find(tensor.name) != nullptr;
    const SafetensorsFile& file = is_in_head ? *head : weights;
    std::string name = tensor.name;
    if (file.find(name) == nullptr && name.starts_with("bert.")) name = name.substr(5);
    file.read_floats(name, tensor.shape, out);
  }
  model.pack_weights();
}

std::filesystem::path golden(const std::string& name) {
  return tilewright::testing::source_dir() / "tests/golden/data" / name;
}

// A small model and the file with its expected values, which also holds the head if the model's
// file does not.
struct SmallModel {
  std::string directory;
  std::string file;
  Head head;

  SafetensorsFile weights() const {
    return SafetensorsFile(golden(directory) / "model.safetensors");
  }
  SafetensorsFile expected() const { return SafetensorsFile(golden(directory) / file); }
  EncoderConfig config() const {
    EncoderConfig config = checkpoint::read_model_config(golden(directory)).encoder;
    config.head = head;
    if (head == Head::kRegression) config.num_labels = 1;
    if (head == Head::kQuestionAnswering) config.num_labels = 2;
    return config;
  }
};
const std::vector<SmallModel>& small_models() {
  static const std::vector<SmallModel> models = {
      {"small_d32", "expected.safetensors", Head::kClassification},
      {"small_d64", "expected.safetensors", Head::kClassification},
      {"heads_bert", "regression.safetensors", Head::kRegression},
      {"heads_bert", "question_answering.safetensors", Head::kQuestionAnswering},
      {"heads_distilbert", "classification.safetensors", Head::kClassification},
      {"heads_distilbert", "regression.safetensors", Head::kRegression},
      {"heads_distilbert", "question_answering.safetensors", Head::kQuestionAnswering},
      {"heads_bert", "question_answering_padded.safetensors", Head::kQuestionAnswering},
      {"heads_distilbert", "question_answering_padded.safetensors", Head::kQuestionAnswering},
      {"lengths_bert", "regression.safetensors", Head::kRegression},
      {"lengths_bert", "question_answering.safetensors", Head::kQuestionAnswering},
  };
  return models;
}

template <typename Element>
void expect_small_gradients(const SmallModel& small, const ModelKernels<Element>& kernels,
                            int threads, std::int64_t group_shards) {
  const SafetensorsFile expected = small.expected();
  Run<Element> run(small.config(), kernels, threads, expected, group_shards);
  load(run.model, small.weights(), &expected);
  const double bound = rounding_bound<Element>(run.model.config());
  const std::vector<float> gradient = run.gradient();
  const double loss = scalar(expected, "loss");
  EXPECT_NEAR(
      gradient.back(), loss,
      loss * bound +
          kSlack * std::abs(scalar(expected, std::string(dtype<Element>()) + "loss") - loss));
  for (const Tensor& tensor : run.model.layout().tensors) {
    const auto exact = read_floats(expected, "grad." + tensor.name, tensor.shape);
    const Tensor& reference = norm_reference(run.model.layout(), tensor);
    const double size = norm(read_floats(expected, "grad." + reference.name, reference.shape));
    const double torch =
        scalar(expected, std::string(dtype<Element>()) + "grad_error." + tensor.name);
    EXPECT_LE(distance(run.dense(tensor, gradient), exact) / size,
              cancellation_factor(run.model.layout(), tensor) * std::max(bound, kSlack * torch))
        << tensor.name << " (PyTorch: " << torch << ")";
  }
  // No other position was computed.
  const std::int64_t padded = read_padding(expected).length * run.batch.B();
  EXPECT_EQ(run.model.counters().forward,
            padded > 0 ? padded : read_integers(expected, "cu_seqlens").back());
}

template <typename Element>
void expect_ten_steps(const SmallModel& small, Isa isa) {
  const SafetensorsFile expected = small.expected();
  Run<Element> run(small.config(), kernels_of<Element>(isa), 2, expected, 4);
  load(run.model, small.weights(), &expected);
  AdamWSettings settings;
  settings.weight_decay = 0.01f;
  Optimizer<Element> optimizer(run.model, run.context, settings);
  const auto losses = read_floats(expected, "adamw.losses", {10});
  const auto torch = read_floats(expected, std::string(dtype<Element>()) + "adamw.losses", {10});
  const auto norms = read_floats(expected, "adamw.grad_norms", {10});
  // Errors grow with each step. Allowed: kSlack times PyTorch's largest error so far, and at least
  // the rounding bound per step.
  double torch_error = 0;
  for (std::size_t step = 0; step < 10; ++step) {
    const std::vector<float> gradient = run.gradient();
    torch_error = std::max<double>(torch_error, std::abs(torch[step] - losses[step]));
    const double bound =
        rounding_bound<Element>(run.model.config()) * losses[0] * static_cast<double>(step + 1);
    EXPECT_NEAR(gradient.back(), losses[step], std::max(bound, kSlack * torch_error)) << step;
    const double before =
        optimizer.step(static_cast<std::int64_t>(step) + 1, 1e-3f, gradient, run.touched);
    const double relative =
        rounding_bound<Element>(run.model.config()) * static_cast<double>(step + 1) +
        kSlack * torch_error / losses[0];
    // AdamW divides a gradient by its magnitude, so the update of an element near zero depends on
    // the sign of its rounding error. Weights and gradients therefore differ more than the loss.
    EXPECT_NEAR(before, norms[step], norms[step] * 16 * relative) << step;
  }
}

struct Case {
  SmallModel model;
  Isa isa;
};
std::string name_of(const SmallModel& model) {
  return model.directory + "_" + model.file.substr(0, model.file.find('.'));
}
void PrintTo(const SmallModel& model, std::ostream* out) { *out << name_of(model); }
std::string case_name(const Case& tested) {
  return name_of(tested.model) + "_" + std::string(runtime::name(tested.isa));
}
void PrintTo(const Case& tested, std::ostream* out) { *out << case_name(tested); }
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Isa isa : runtime::detect_cpu().isas) {
    for (const SmallModel& model : small_models()) all.push_back({model, isa});
  }
  return all;
}
class Golden : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Golden, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return case_name(tested.param); });

TEST_P(Golden, GradientsInFp32AgreeWithPyTorch) {
  expect_small_gradients(GetParam().model, kernels_of<float>(GetParam().isa), 1, 4);
}
TEST_P(Golden, GradientsInBf16AgreeWithPyTorch) {
  expect_small_gradients(GetParam().model, kernels_of<bf16>(GetParam().isa), 2, 2);
}
TEST_P(Golden, TenStepsInFp32AgreeWithPyTorch) {
  expect_ten_steps<float>(GetParam().model, GetParam().isa);
}
TEST_P(Golden, TenStepsInBf16AgreeWithPyTorch) {
  expect_ten_steps<bf16>(GetParam().model, GetParam().isa);
}

class GoldenOnEmulatedAmx : public ::testing::TestWithParam<SmallModel> {
 protected:
  void SetUp() override {
    if (!kernels::testing::cpu_supports(Isa::kAvx512Bf16)) {
      GTEST_SKIP() << "this CPU has no avx512_bf16";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(SmallModels, GoldenOnEmulatedAmx, ::testing::ValuesIn(small_models()),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(GoldenOnEmulatedAmx, GradientsInBf16AgreeWithPyTorch) {
  expect_small_gradients(GetParam(), kernels::testing::kernels_of_emulated_amx(), 2, 2);
}

template <typename Element>
void expect_minilm(Isa isa) {
  ASSERT_EQ(tilewright::testing::missing_model(), "");
  const SafetensorsFile expected(golden("minilm") / "expected.safetensors");
  Run<Element> run(minilm_config(), kernels_of<Element>(isa), 2, expected, 4);
  load(run.model, SafetensorsFile(tilewright::testing::model_dir() / "model.safetensors"),
       &expected);
  const double bound = rounding_bound<Element>(run.model.config());
  const std::vector<float> gradient = run.gradient();
  const double loss = scalar(expected, "loss");
  EXPECT_NEAR(
      gradient.back(), loss,
      loss * bound +
          kSlack * std::abs(scalar(expected, std::string(dtype<Element>()) + "loss") - loss));
  for (const Tensor& tensor : run.model.layout().tensors) {
    const auto computed = run.dense(tensor, gradient);
    const double exact = scalar(expected, "norm." + tensor.name);
    const ParameterLayout& layout = run.model.layout();
    const double size = scalar(expected, "norm." + norm_reference(layout, tensor).name);
    const double torch =
        scalar(expected, std::string(dtype<Element>()) + "grad_error." + tensor.name);
    const double allowed = cancellation_factor(layout, tensor) * std::max(bound, kSlack * torch);
    EXPECT_NEAR(norm(computed), exact, size * allowed) << tensor.name;
    const auto index = read_integers(expected, "sample_index." + tensor.name);
    const auto value = read_floats(expected, "sample_value." + tensor.name,
                                   {static_cast<std::int64_t>(index.size())});
    // An error spread evenly over n elements is size * allowed / sqrt(n) per element. The worst of
    // the samples may have eight times this error.
    const double each =
        8 * size * allowed /
        std::sqrt(static_cast<double>(run.touched.R() * 384 < tensor.count ? run.touched.R() * 384
                                                                           : tensor.count));
    double worst = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
      worst = std::max<double>(worst,
                               std::abs(computed[static_cast<std::size_t>(index[i])] - value[i]) -
                                   2 * allowed * std::abs(value[i]));
    }
    EXPECT_LE(worst, each) << tensor.name;
  }
}

class RealModel : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(EveryIsa, RealModel, ::testing::ValuesIn(runtime::detect_cpu().isas),
                         [](const auto& tested) {
                           return std::string(runtime::name(tested.param));
                         });
TEST_P(RealModel, GradientsOfMiniLmInFp32AgreeWithPyTorch) { expect_minilm<float>(GetParam()); }
TEST_P(RealModel, GradientsOfMiniLmInBf16AgreeWithPyTorch) { expect_minilm<bf16>(GetParam()); }

}  // namespace
}  // namespace tilewright::nn
