#include "worker/nn/parameters.h"

#include <fmt/format.h>

#include <numeric>
#include <string_view>

#include "worker/runtime/split_mix.h"

namespace tilewright::nn {
namespace {

// Appends tensors to a layout.
class Builder {
 public:
  explicit Builder(ParameterLayout& layout) : layout_(layout) {}

  std::int64_t add(const std::string& name, std::vector<std::int64_t> shape, bool decays = true) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    layout_.tensors.push_back({name, std::move(shape), layout_.count, count, decays, head_});
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
    for (const std::string& part : parts) add(part + ".bias", {n}, false);
    return linear;
  }
  NormLayout norm(const std::string& name, std::int64_t size) {
    NormLayout norm;
    norm.gamma = add(name + ".weight", {size}, false);
    norm.beta = add(name + ".bias", {size}, false);
    return norm;
  }
  void end_of_head() { head_ = false; }

 private:
  ParameterLayout& layout_;
  bool head_ = true;
};

}  // namespace

ParameterLayout::ParameterLayout(const EncoderConfig& config) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t I = config.intermediate_size;
  const ModelFamily& family = *config.family;
  const TensorNames& names = family.tensors;
  Builder build(*this);
  if (config.head == Head::kQuestionAnswering) {
    output = build.linear({"qa_outputs"}, config.num_labels, H);
  } else {
    output = build.linear({"classifier"}, config.num_labels, H);
    head_dense = build.linear({std::string(names.head_dense)}, H, H);
  }
  build.end_of_head();
  head_end = count;
  layers.resize(static_cast<std::size_t>(config.num_hidden_layers));
  for (std::int64_t l = config.num_hidden_layers; l-- > 0;) {
    EncoderLayerLayout& layer = layers[static_cast<std::size_t>(l)];
    const auto name = [&](std::string_view part) {
      return fmt::format("{}{}{}.{}", family.prefix, names.layers, l, part);
    };
    layer.begin = count;
    layer.output_norm = build.norm(name(names.output_norm), H);
    layer.output = build.linear({name(names.output)}, H, I);
    layer.intermediate = build.linear({name(names.intermediate)}, I, H);
    layer.attention_norm = build.norm(name(names.attention_norm), H);
    layer.attention_output = build.linear({name(names.attention_output)}, H, H);
    layer.qkv = build.linear({name(names.query), name(names.key), name(names.value)}, H, H);
    layer.end = count;
  }
  const std::string embeddings = fmt::format("{}embeddings.", family.prefix);
  embedding_norm = build.norm(embeddings + "LayerNorm", H);
  position_embeddings =
      build.add(embeddings + "position_embeddings.weight", {config.max_position_embeddings, H});
  if (config.type_vocab_size > 0) {
    type_embeddings =
        build.add(embeddings + "token_type_embeddings.weight", {config.type_vocab_size, H});
  }
  word_embeddings = build.add(embeddings + "word_embeddings.weight", {config.vocab_size, H});
}

std::vector<LinearLayout> ParameterLayout::linears() const {
  std::vector<LinearLayout> all = {output};
  if (head_dense.N > 0) all.push_back(head_dense);
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
