#include "worker/nn/parameters.h"

#include <numeric>
#include <string_view>

#include "common/base/check.h"
#include "worker/runtime/split_mix.h"

namespace tilewright::nn {
namespace {

// Appends tensors to a layout.
class Builder {
 public:
  explicit Builder(ParameterLayout& layout) : layout_(layout) {}

  std::int64_t add(const std::string& name, std::vector<std::int64_t> shape) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const bool decays = !name.ends_with(".bias") && name.find("LayerNorm") == std::string::npos;
    layout_.tensors.push_back({name, std::move(shape), layout_.count, count, decays});
    layout_.count += count;
    return layout_.count - count;
  }
  // Linear layers of [n, k] each that compute as one layer [parts.size() * n, k].
  LinearLayout linear(const std::vector<std::string>& parts, std::int64_t n, std::int64_t k) {
    LinearLayout linear;
    linear.N = static_cast<std::int64_t>(parts.size()) * n;
    linear.K = k;
    linear.weight = layout_.count;
    for (const std::string& part : parts) add(part + ".weight", {n, k});
    linear.bias = layout_.count;
    for (const std::string& part : parts) add(part + ".bias", {n});
    return linear;
  }
  NormLayout norm(const std::string& name, std::int64_t size) {
    NormLayout norm;
    norm.gamma = add(name + ".weight", {size});
    norm.beta = add(name + ".bias", {size});
    return norm;
  }

 private:
  ParameterLayout& layout_;
};

}  // namespace

ParameterLayout::ParameterLayout(const EncoderConfig& config) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t I = config.intermediate_size;
  Builder build(*this);
  classifier = build.linear({"classifier"}, config.num_labels, H);
  pooler = build.linear({"bert.pooler.dense"}, H, H);
  layers.resize(static_cast<std::size_t>(config.num_hidden_layers));
  for (std::int64_t l = config.num_hidden_layers; l-- > 0;) {
    EncoderLayerLayout& layer = layers[static_cast<std::size_t>(l)];
    const std::string name = fmt::format("bert.encoder.layer.{}.", l);
    const std::string self = name + "attention.self.";
    layer.begin = count;
    layer.output_norm = build.norm(name + "output.LayerNorm", H);
    layer.output = build.linear({name + "output.dense"}, H, I);
    layer.intermediate = build.linear({name + "intermediate.dense"}, I, H);
    layer.attention_norm = build.norm(name + "attention.output.LayerNorm", H);
    layer.attention_output = build.linear({name + "attention.output.dense"}, H, H);
    layer.qkv = build.linear({self + "query", self + "key", self + "value"}, H, H);
    layer.end = count;
  }
  embedding_norm = build.norm("bert.embeddings.LayerNorm", H);
  const std::string embeddings = "bert.embeddings.";
  position_embeddings =
      build.add(embeddings + "position_embeddings.weight", {config.max_position_embeddings, H});
  type_embeddings =
      build.add(embeddings + "token_type_embeddings.weight", {config.type_vocab_size, H});
  word_embeddings = build.add(embeddings + "word_embeddings.weight", {config.vocab_size, H});
}

std::vector<LinearLayout> ParameterLayout::linears() const {
  std::vector<LinearLayout> all = {classifier, pooler};
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    all.insert(all.end(),
               {layer->output, layer->intermediate, layer->attention_output, layer->qkv});
  }
  return all;
}

void initialise_tensor(const Tensor& tensor, std::uint64_t seed, float stddev, float* values) {
  if (!tensor.decays) stddev = 0.0f;
  std::uint64_t key = seed;
  for (const char c : tensor.name) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  runtime::SplitMix64 random(key);
  // Uniform in [0, 1) with 24 bits.
  const auto uniform = [&random] { return static_cast<double>(random.next() >> 40) * 0x1p-24; };
  for (std::int64_t i = 0; i < tensor.count; ++i) {
    double sum = -6.0;
    for (int draw = 0; draw < 12; ++draw) sum += uniform();
    values[i] = stddev == 0.0f ? 0.0f : static_cast<float>(sum) * stddev;
  }
}

}  // namespace tilewright::nn
