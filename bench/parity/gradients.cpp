// Computes logits, loss and all gradients of one batch for a model directory of transformers, then
// AdamW steps on it, and writes the model as a training would. gradients.py makes the inputs and
// compares the outputs with PyTorch.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/environment.h"
#include "common/contract/model_files.h"
#include "worker/checkpoint/model_config.h"
#include "worker/checkpoint/model_directory.h"
#include "worker/checkpoint/output_ownership.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"
#include "worker/runtime/bf16.h"
#include "worker/runtime/cpu.h"

namespace tilewright {
namespace {

using checkpoint::SafetensorsFile;

struct Options {
  std::string model;  // directory with config.json and model.safetensors
  std::string batch;  // safetensors: the inputs of tests/golden/write_goldens.py
  std::string out;    // new directory: result.safetensors, model/
  nn::Head head = nn::Head::kClassification;
  std::int64_t steps = 0;
  float learning_rate = 1e-3f;
  int threads = 2;
  bool fp32 = false;
};

template <typename Value>
std::vector<Value> read_values(const SafetensorsFile& file, const char* name) {
  const checkpoint::Tensor* const tensor = file.find(name);
  if (tensor == nullptr) return {};
  std::vector<Value> values(static_cast<std::size_t>(tensor->size()));
  if (tensor->bytes.size() != values.size() * sizeof(Value)) {
    file.fail(std::string(name) + " does not have elements of 32 bits");
  }
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// All examples in one group of four shards.
nn::Batch read_batch(const std::string& path) {
  constexpr std::size_t kShards = 4;
  const SafetensorsFile file(path);
  const auto ids = read_values<std::int32_t>(file, "input_ids");
  const auto types = read_values<std::int32_t>(file, "token_type_ids");
  const auto offsets = read_values<std::int32_t>(file, "cu_seqlens");
  const auto labels = read_values<std::int32_t>(file, "labels");
  const auto last_labels = read_values<std::int32_t>(file, "last_labels");
  const auto values = read_values<float>(file, "values");
  nn::Batch batch;
  batch.open_group(0);
  const std::size_t n = offsets.size() - 1;
  for (std::size_t b = 0, shard = 0; shard < kShards; ++shard) {
    for (; b < n && b * kShards / n == shard; ++b) {
      nn::Target target;
      if (!labels.empty()) target.label = labels[b];
      if (!last_labels.empty()) target.last = last_labels[b];
      if (!values.empty()) target.value = values[b];
      const auto begin = static_cast<std::size_t>(offsets[b]);
      const auto length = static_cast<std::size_t>(offsets[b + 1]) - begin;
      const auto zeros = std::ranges::count(std::span(types).subspan(begin, length), 0);
      batch.add(std::span(ids).subspan(begin, length), static_cast<std::size_t>(zeros), target,
                static_cast<std::int32_t>(b));
    }
    batch.close_shard();
  }
  return batch;
}

template <typename Activation>
void run(const Options& options) {
  const runtime::Isa isa =
      runtime::choose_isa(runtime::detect_cpu(), environment_variable(env::kIsa)).or_throw();
  checkpoint::ModelConfig source = checkpoint::read_model_config(options.model);
  nn::EncoderConfig config = source.encoder;
  config.head = options.head;
  if (config.head == nn::Head::kRegression) source.labels.clear();
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  config.classifier_dropout = config.qa_dropout = 0;

  runtime::ThreadPool pool(options.threads);
  const auto ops = kernels::make_ops<Activation>(isa);
  const auto parameter_ops = kernels::make_parameter_ops(isa);
  const nn::Context<Activation> context{pool, ops, parameter_ops};
  nn::Model<Activation> model(config, context);
  const auto views = [&](float* base) {
    std::vector<checkpoint::TensorView> all;
    for (const nn::Tensor& tensor : model.layout().tensors) {
      all.push_back({tensor.name, tensor.shape, base + tensor.offset});
    }
    return all;
  };
  const SafetensorsFile weights(std::filesystem::path(options.model) / model_files::kSafetensors);
  for (const checkpoint::TensorView& view : views(model.parameters().data())) {
    weights.read_floats(view.name, view.shape, {view.data, static_cast<std::size_t>(view.size())});
  }
  model.pack_weights();

  // The folder is that of the starting weights, so that transformers must find the same logits.
  std::filesystem::create_directories(options.out);
  const auto folder = std::filesystem::path(options.out) / "model";
  write_model_directory(checkpoint::acquire_output_dir(folder, {"parity", {}, true}),
                        {views(model.parameters().data()),
                         checkpoint::model_config_json(source.json, source.labels, config, ""),
                         checkpoint::tokenizer_files(options.model),
                         {}});

  const nn::Batch batch = read_batch(options.batch);
  nn::TouchedRows touched(config.vocab_size);
  touched.mark(batch.ids);
  touched.finish();
  model.reserve({batch.T(), batch.B(), batch.max_seqlen}, 4);
  std::vector<float> gradient(static_cast<std::size_t>(model.gradient_count(touched.R())));
  nn::GradientSink sink;
  sink.groups = {gradient.data()};
  const auto compute = [&] {
    const auto logits = model.forward(batch, {}, true);
    model.backward(batch, {}, 1.0f / static_cast<float>(batch.B()), touched, sink);
    return logits;
  };
  std::vector<float> logits;
  for (const Activation logit : compute()) logits.push_back(runtime::to_float(logit));

  std::vector<checkpoint::NamedTensor> result;
  result.push_back(checkpoint::float_tensor(
      "logits", {static_cast<std::int64_t>(logits.size()) / config.num_labels, config.num_labels},
      logits.data()));
  const std::vector<float> first = gradient;  // AdamW steps overwrite it
  result.push_back(checkpoint::float_tensor("loss", {1}, &first.back()));
  for (const nn::Tensor& tensor : model.layout().tensors) {
    checkpoint::Shape shape = tensor.shape;
    // Of the word embeddings only the rows of ids that occur, in ascending order.
    if (tensor.offset == model.layout().word_embeddings) shape[0] = touched.R();
    result.push_back(
        checkpoint::float_tensor("grad." + tensor.name, shape, first.data() + tensor.offset));
  }
  std::vector<float> losses;
  if (options.steps > 0) {
    nn::Optimizer<Activation> optimizer(model, context, {.weight_decay = 0.01f});
    for (std::int64_t step = 1; step <= options.steps; ++step) {
      compute();
      losses.push_back(gradient.back());
      optimizer.step(step, options.learning_rate, gradient, touched);
    }
    result.push_back(checkpoint::float_tensor("adamw.losses", {options.steps}, losses.data()));
  }
  const auto path = std::filesystem::path(options.out) / "result.safetensors";
  std::filesystem::remove(path);
  checkpoint::write_safetensors(path, std::move(result));
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  using tilewright::nn::Head;
  tilewright::Options options;
  CLI::App app("Computes the gradients that gradients.py compares with PyTorch.");
  app.add_option("--model", options.model, "Model directory of transformers")->required();
  app.add_option("--batch", options.batch, "Inputs and targets (safetensors)")->required();
  app.add_option("--out", options.out, "Directory for the results")->required();
  const std::map<std::string, Head> heads = {{"classification", Head::kClassification},
                                             {"regression", Head::kRegression},
                                             {"question_answering", Head::kQuestionAnswering}};
  app.add_option("--head", options.head, "Head")
      ->required()
      ->transform(CLI::CheckedTransformer(heads));
  app.add_option("--steps", options.steps, "AdamW steps after the gradients")
      ->check(CLI::Range(0, 1000));
  app.add_option("--learning_rate", options.learning_rate, "Of these steps");
  app.add_option("--threads", options.threads, "Threads")->check(CLI::Range(1, 1024));
  app.add_flag("--fp32", options.fp32, "Use fp32 instead of bf16");
  CLI11_PARSE(app, argc, argv);
  try {
    options.fp32 ? tilewright::run<float>(options)
                 : tilewright::run<tilewright::runtime::bf16>(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewright-parity-gradients: %s\n", error.what());
    return 1;
  }
  return 0;
}
