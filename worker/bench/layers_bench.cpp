#include "worker/bench/layers_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/strings.h"
#include "worker/bench/operands.h"
#include "worker/bench/statistics.h"
#include "worker/kernels/gemm/peak.h"
#include "worker/nn/encoder_layer.h"
#include "worker/runtime/cpu.h"

namespace tilewright::bench {
namespace {

using runtime::Buffer;

// One encoder layer with random weights, its activations and its input.
template <typename Activation>
class Layer {
 public:
  Layer(const nn::EncoderConfig& config, const nn::Batch& batch, std::int64_t shards,
        const nn::Context<Activation>& c)
      : config_(config),
        batch_(batch),
        layout_(config),
        parameters_(static_cast<std::size_t>(layout_.count)),
        gradient_(static_cast<std::size_t>(layout_.word_embeddings)),
        input_(random_buffer<Activation>(batch.T() * config.hidden_size, 1)),
        residual_(random_buffer<float>(batch.T() * config.hidden_size, 1)),
        d_output_(random_buffer<float>(batch.T() * config.hidden_size, 2)) {
    sink_.groups = {gradient_.data()};
    layer_.layout = layout_.layers.front();
    const nn::EncoderLayerLayout& at = layer_.layout;
    for (const nn::Tensor& tensor : layout_.tensors) {
      nn::initialise_tensor(tensor, 1, 0.02f, parameters_.data() + tensor.offset);
    }
    layer_.attention_norm = norm(at.attention_norm);
    layer_.output_norm = norm(at.output_norm);
    std::size_t kernel_bytes = c.ops.attention_scratch(batch.max_seqlen, config.num_attention_heads,
                                                       config.head_size(), c.pool.size());
    kernel_bytes = std::max(kernel_bytes,
                            c.ops.add_norm_backward_scratch(batch.T(), shards, config.hidden_size));
    const auto linear = [&](const nn::LinearLayout& l, nn::Linear<Activation>& to) {
      const std::size_t packed = (c.ops.packed_weight_size(l.N, l.K) + 31) / 32 * 32;
      packed_.emplace_back(2 * packed);
      Activation* const copies = packed_.back().data();
      const float* const weight = parameters_.data() + l.weight;
      to = {l.N, l.K, weight, parameters_.data() + l.bias, copies, copies + packed};
      c.ops.pack_weight(weight, l.N, l.K, 0, l.N, to.packed_forward, to.packed_backward);
      kernel_bytes = std::max(
          {kernel_bytes, c.ops.linear_forward_scratch(l.K, l.N, c.pool.size()),
           c.ops.linear_backward_weight_scratch(batch.T(), shards, l.K, l.N, c.pool.size())});
    };
    linear(at.qkv, layer_.qkv);
    linear(at.attention_output, layer_.attention_output);
    linear(at.intermediate, layer_.intermediate);
    linear(at.output, layer_.output);
    runtime::Arena measure;
    allocate(measure, kernel_bytes);
    arena_ = runtime::Arena(measure.used());
    allocate(arena_, kernel_bytes);
  }

  void forward(const nn::Context<Activation>& c) {
    const kernels::Residual residual{residual_.data(), nullptr, {}};
    layer_.forward(c, config_, batch_, kKey, true, input_.data(), residual, activations_, scratch_);
  }
  void backward(const nn::Context<Activation>& c) {
    layer_.backward(c, config_, batch_, kKey, input_.data(), activations_, scratch_, nullptr,
                    sink_);
  }
  // The gradient of the output, which backward() overwrites.
  void reset_gradient() { std::ranges::copy(d_output_.span(), scratch_.d_hidden32); }

 private:
  static constexpr nn::DropoutKey kKey = {1, 1};

  kernels::LayerNorm norm(const nn::NormLayout& at) {
    std::fill_n(parameters_.data() + at.gamma, config_.hidden_size, 1.0f);
    return {parameters_.data() + at.gamma, parameters_.data() + at.beta, config_.layer_norm_eps};
  }
  void allocate(runtime::Arena& arena, std::size_t kernel_bytes) {
    activations_.allocate_before_output(arena, config_, batch_.T(), batch_.T());
    activations_.allocate_output(arena, config_, batch_.T());
    scratch_.allocate(arena, config_, batch_.T(), kernel_bytes, nn::Use::kTraining);
  }

  nn::EncoderConfig config_;
  const nn::Batch& batch_;
  nn::ParameterLayout layout_;
  Buffer<float> parameters_, gradient_;
  Buffer<Activation> input_;
  Buffer<float> residual_, d_output_;
  std::vector<Buffer<Activation>> packed_;
  nn::EncoderLayer<Activation> layer_;
  runtime::Arena arena_;
  nn::LayerActivations<Activation> activations_;
  nn::LayerScratch<Activation> scratch_;
  nn::GradientSink sink_;
};

template <typename Activation>
void run(const LayersBenchOptions& options, runtime::Isa isa, LayersBench& bench) {
  nn::EncoderConfig config = model_config(options.workload);
  config.num_hidden_layers = 1;
  const nn::Batch batch = random_batch(options.workload, options.shards);
  runtime::ThreadPool pool(pool_threads(options.workload.threads));
  const auto ops = kernels::make_ops<Activation>(isa, options.workload.backend);
  const auto parameter_ops = kernels::make_parameter_ops(isa);
  const nn::Context<Activation> plain{pool, ops, parameter_ops};
  Recorder forward_recorder;
  Recorder backward_recorder;
  const ProfiledOps<Activation> forward_ops(ops, parameter_ops, forward_recorder);
  const ProfiledOps<Activation> backward_ops(ops, parameter_ops, backward_recorder);
  const nn::Context<Activation> profiled_forward{pool, forward_ops.ops(), parameter_ops};
  const nn::Context<Activation> profiled_backward{pool, backward_ops.ops(), parameter_ops};
  Layer<Activation> layer(config, batch, options.shards, plain);

  layer.forward(plain);  // warm-up
  layer.reset_gradient();
  layer.backward(plain);
  std::vector<double> forward;
  std::vector<double> backward;
  for (int i = 0; i < options.repetitions; ++i) {
    forward.push_back(seconds([&] { layer.forward(plain); }));
    layer.reset_gradient();
    backward.push_back(seconds([&] { layer.backward(plain); }));
    bench.forward.seconds += seconds([&] { layer.forward(profiled_forward); });
    layer.reset_gradient();
    bench.backward.seconds += seconds([&] { layer.backward(profiled_backward); });
  }
  bench.threads = pool.size();
  bench.forward_seconds = median(forward);
  bench.backward_seconds = median(backward);
  double operations = 0;
  kernels::PeakMeter peak(isa, options.workload.precision, pool);
  const auto summarise = [&](const Recorder& recorder, Profile& profile) {
    profile.seconds /= options.repetitions;
    profile.kernels = recorder.times(options.repetitions, pool.size());
    for (const KernelTime& kernel : profile.kernels) {
      operations += kernel.operations;
      peak.peak_for(kernel.operations / kernel.seconds * 1e-9);
    }
  };
  summarise(forward_recorder, bench.forward);
  summarise(backward_recorder, bench.backward);
  bench.gflops = operations / (bench.forward_seconds + bench.backward_seconds) * 1e-9;
  bench.forward.peak_gflops = bench.backward.peak_gflops = peak.peak_for(bench.gflops);
}

}  // namespace

LayersBench bench_layers(const LayersBenchOptions& options, runtime::Isa isa) {
  return run_workload<LayersBench>(options, isa, [&]<typename Activation>(LayersBench& bench) {
    run<Activation>(options, isa, bench);
  });
}

std::string LayersBench::to_json() const {
  nlohmann::ordered_json json = json_of("layers", options.workload);
  json["virtual_shards"] = options.shards;
  json["forward_seconds"] = forward_seconds;
  json["backward_seconds"] = backward_seconds;
  json["gflops"] = gflops;
  json["peak_gflops"] = forward.peak_gflops;
  json["share_of_peak"] = gflops / forward.peak_gflops;
  json["forward"] = forward.to_json();
  json["backward"] = backward.to_json();
  return json.dump(2) + "\n";
}

std::string LayersBench::to_text() const {
  return fmt::format(
      "One encoder layer of {}, {} on {}: forward {:.2f} ms, backward {:.2f} ms, {:.0f} "
      "GFLOP/s ({:.0f} % of {:.0f})\n\nforward\n{}\nbackward\n{}",
      options.workload.description(), isa, counted(static_cast<std::size_t>(threads), "thread"),
      1e3 * forward_seconds, 1e3 * backward_seconds, gflops, 100 * gflops / forward.peak_gflops,
      forward.peak_gflops, forward.to_text(), backward.to_text());
}

}  // namespace tilewright::bench
