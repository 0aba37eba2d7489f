#include "worker/bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/nn/flops.h"
#include "worker/nn/model.h"
#include "worker/nn/optimizer.h"

namespace tilewright::bench {
namespace {

constexpr int kWarmUp = 2;

// The values of the token ids do not matter, so a linear congruential generator is sufficient.
std::int32_t next_id(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::int32_t>(1000 + (state >> 33) % 29000);
}

nn::Batch make_batch(const StepBenchOptions& options) {
  nn::Batch batch;
  std::uint64_t state = 1;
  const std::int64_t n = options.examples;
  batch.open_group(0);
  const bool answers = options.question_answering;
  std::int64_t b = 0;
  for (std::int64_t shard = 0; shard < options.shards; ++shard) {
    for (; b < n && b * options.shards / n == shard; ++b) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(options.seqlen));
      for (std::int32_t& id : ids) id = next_id(state);
      batch.add(ids, std::vector<std::int32_t>(ids.size(), 0),
                {.label = answers ? 0 : static_cast<std::int32_t>(b % 2),
                 .last = answers ? static_cast<std::int32_t>(options.seqlen - 1) : 0},
                static_cast<std::int32_t>(b));
    }
    batch.close_shard();
  }
  return batch;
}

template <typename Activation>
StepBenchResult run(const StepBenchOptions& options, runtime::Isa isa) {
  nn::EncoderConfig config = bench_config(options.model);
  if (options.question_answering) config.head = nn::Head::kQuestionAnswering;
  const runtime::CpuInfo cpu = runtime::detect_cpu();
  runtime::ThreadPool pool(options.threads > 0 ? options.threads
                                               : std::min(cpu.physical_cores, cpu.usable_cpus));
  const auto ops = kernels::make_ops<Activation>(isa, options.backend);
  const auto parameter_ops = kernels::make_parameter_ops(isa);
  const nn::Context<Activation> context{pool, ops, parameter_ops};
  nn::Model<Activation> model(config, context);
  for (const nn::Tensor& tensor : model.layout().tensors) {
    nn::initialise_tensor(tensor, 1, 0.02f, model.parameters().data() + tensor.offset);
    if (!tensor.decays && tensor.name.ends_with(".weight")) {  // of layer norm
      std::fill_n(model.parameters().data() + tensor.offset, tensor.count, 1.0f);
    }
  }
  model.pack_weights();
  nn::Optimizer<Activation> optimizer(model, context, {});
  const nn::Batch batch = make_batch(options);
  nn::TouchedRows touched(config.vocab_size);
  touched.mark(batch.ids);
  touched.finish();
  model.reserve(batch.limits(), options.shards);
  runtime::Buffer<float> gradient(static_cast<std::size_t>(model.gradient_count(touched.R())));
  nn::GradientSink sink;
  sink.groups = {gradient.data()};

  StepBenchResult result;
  for (std::int64_t step = 0; step < kWarmUp + options.steps; ++step) {
    const MonotonicTime begin = monotonic_now();
    const nn::DropoutKey key{1, static_cast<std::uint32_t>(step)};
    model.forward(batch, key, true);
    model.backward(batch, key, 1.0f / static_cast<float>(batch.B()), touched, sink);
    optimizer.step(step + 1, 3e-5f, gradient.span(), touched);
    const double seconds = std::chrono::duration<double>(monotonic_now() - begin).count();
    if (step >= kWarmUp) result.seconds.push_back(seconds);
  }
  std::vector<double> sorted = result.seconds;
  std::sort(sorted.begin(), sorted.end());
  result.median = sorted[sorted.size() / 2];
  result.cpu = cpu.model;
  result.isa = runtime::name(isa);
  result.backend = options.backend == kernels::GemmBackend::kNative ? "native" : "onednn";
  result.options = options;
  result.options.threads = pool.size();
  result.examples_per_second = static_cast<double>(batch.B()) / result.median;
  result.tokens_per_second = static_cast<double>(batch.T()) / result.median;
  result.gflops = nn::step_flops(config, batch) / result.median * 1e-9;
  result.peak_gflops = kernels::PeakMeter(isa, options.bf16, pool).peak_for(result.gflops);
  return result;
}

}  // namespace

nn::EncoderConfig bench_config(const std::string& model) {
  nn::EncoderConfig config;
  if (model == "bert-base") return config;
  if (model == "bert-large") {
    config.hidden_size = 1024;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 16;
    config.intermediate_size = 4096;
    return config;
  }
  if (model == "distilbert") {
    config.family = &nn::kDistilBert;
    config.num_hidden_layers = 6;
    config.type_vocab_size = 0;
    config.classifier_dropout = nn::kDistilBert.default_classifier_dropout;
    config.qa_dropout = nn::kDistilBert.default_qa_dropout;
    return config;
  }
  if (model == "minilm") {
    config.hidden_size = 384;
    config.num_hidden_layers = 6;
    config.intermediate_size = 1536;
    return config;
  }
  throw Failure(
      ExitCode::kUsage,
      fmt::format(
          "--model: found \"{}\", expected one of bert-base, bert-large, distilbert, minilm",
          model));
}

StepBenchResult bench_step(const StepBenchOptions& options, runtime::Isa isa) {
  return options.bf16 ? run<runtime::bf16>(options, isa) : run<float>(options, isa);
}

std::string StepBenchResult::to_json() const {
  nlohmann::ordered_json json;
  json["benchmark"] = "step";
  json["cpu"] = cpu;
  json["isa"] = isa;
  json["gemm_backend"] = backend;
  json["model"] = options.model;
  json["head"] = options.question_answering ? "question_answering" : "classification";
  json["dtype"] = options.bf16 ? "bf16" : "fp32";
  json["threads"] = options.threads;
  json["examples"] = options.examples;
  json["sequence_length"] = options.seqlen;
  json["virtual_shards"] = options.shards;
  json["seconds"] = seconds;
  json["median_seconds"] = median;
  json["examples_per_second"] = examples_per_second;
  json["tokens_per_second"] = tokens_per_second;
  json["gflops"] = gflops;
  json["peak_gflops"] = peak_gflops;
  json["share_of_peak"] = gflops / peak_gflops;
  return json.dump(2) + "\n";
}

std::string StepBenchResult::to_text() const {
  return fmt::format(
      "{}{} {} x {} {} {} {} on {} threads, {} shards: {:.3f} s/step, {:.2f} examples/s, {:.0f} "
      "GFLOP/s ({:.0f} % of {:.0f})\n",
      options.model, options.question_answering ? " question answering" : "", options.examples,
      options.seqlen, options.bf16 ? "bf16" : "fp32", isa, backend, options.threads, options.shards,
      median, examples_per_second, gflops, 100 * gflops / peak_gflops, peak_gflops);
}

}  // namespace tilewright::bench
