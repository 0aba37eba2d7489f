#include "worker/nn/model.h"

#include <algorithm>
#include <numeric>

namespace tilewright::nn {
namespace {

// Elements of one packed copy of a weight. Copies begin on cache lines: 32 elements are at least 64
// bytes for both element types.
template <typename Element>
std::size_t padded_packed_size(const kernels::Ops<Element>& ops, const LinearLayout& linear) {
  return (ops.packed_weight_size(linear.N, linear.K) + 31) / 32 * 32;
}

template <typename Element>
std::size_t kernel_scratch_bytes(const EncoderConfig& config, const Context<Element>& c,
                                 const BatchLimits& limits, std::int64_t shards, Use use) {
  const int threads = c.pool.size();
  std::size_t bytes = c.ops.attention_scratch(limits.max_seqlen, config.num_attention_heads,
                                              config.head_size(), threads);
  const auto linear = [&](std::int64_t rows, std::int64_t k, std::int64_t n) {
    bytes = std::max(bytes, c.ops.linear_forward_scratch(k, n, threads));
    if (use == Use::kInference) return;
    bytes = std::max(bytes, c.ops.linear_backward_weight_scratch(rows, shards, k, n, threads));
  };
  const std::int64_t H = config.hidden_size;
  const std::int64_t I = config.intermediate_size;
  bytes = std::max(bytes, c.ops.add_norm_backward_scratch(limits.tokens, shards, H));
  linear(limits.tokens, H, 3 * H);
  linear(limits.tokens, H, H);
  linear(limits.tokens, H, I);
  linear(limits.tokens, I, H);
  if (config.head == Head::kQuestionAnswering) {
    linear(limits.tokens, H, config.num_labels);
  } else {
    linear(limits.examples, H, H);
    linear(limits.examples, H, I);
    linear(limits.examples, I, H);
    linear(limits.examples, H, config.num_labels);
  }
  return bytes;
}

}  // namespace

template <typename Element>
struct Model<Element>::Activations {
  float* embedding_sum = nullptr;    // [T, H]
  float* embedding_stats = nullptr;  // [T, 2]
  Element* embedded = nullptr;       // [T, H]
  std::vector<LayerActivations<Element>> layers;
  LayerScratch<Element> scratch;
  HeadActivations<Element> head;
  kernels::RowIdentity tokens;  // of the current batch

  void allocate(runtime::Arena& arena, const EncoderConfig& config, const BatchLimits& limits,
                std::size_t kernel_bytes, Use use) {
    const std::int64_t T = limits.tokens;
    const std::int64_t H = config.hidden_size;
    embedding_sum = arena.take<float>(T * H);
    embedding_stats = arena.take<float>(T * 2);
    embedded = arena.take<Element>(T * H);
    layers.resize(static_cast<std::size_t>(config.num_hidden_layers));
    const bool keeps_all = use == Use::kTraining && !config.gradient_checkpointing;
    LayerActivations<Element> shared;
    if (!keeps_all) shared.allocate_before_output(arena, config, T, T);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const bool last = l + 1 == layers.size();
      const Rows rows = last ? head_rows(config) : Rows::kTokens;
      const std::int64_t R = rows == Rows::kTokens ? T : limits.examples;
      LayerActivations<Element>& layer = layers[l] = shared;
      if (keeps_all) layer.allocate_before_output(arena, config, T, R);
      if (rows == Rows::kExamples) layer.allocate_first_tokens(arena, config, R);
      if (use == Use::kInference && !last && l >= 2) {
        layer = layers[l - 2];  // a layer reads only the output of the one before
      } else {
        layer.allocate_output(arena, config, R);
      }
    }
    scratch.allocate(arena, config, T, kernel_bytes, use);
    head.allocate(arena, config, T, limits.examples);
  }
};

template <typename Element>
std::size_t Model<Element>::activation_bytes(const EncoderConfig& config,
                                             const Context<Element>& context,
                                             const BatchLimits& limits, std::int64_t shards,
                                             Use use) {
  runtime::Arena measure;
  Activations activations;
  activations.allocate(measure, config, limits,
                       kernel_scratch_bytes(config, context, limits, shards, use), use);
  return measure.used();
}

template <typename Element>
std::size_t Model<Element>::packed_bytes(const EncoderConfig& config,
                                         const Context<Element>& context) {
  std::size_t elements = 0;
  for (const LinearLayout& linear : ParameterLayout(config).linears()) {
    elements += 2 * padded_packed_size(context.ops, linear);
  }
  return elements * sizeof(Element);
}

template <typename Element>
Model<Element>::Model(const EncoderConfig& config, const Context<Element>& context)
    : config_(config),
      c_(context),
      layout_(config),
      parameters_(static_cast<std::size_t>(layout_.count)),
      activations_{std::make_unique<Activations>(), std::make_unique<Activations>()} {
  const std::vector<LinearLayout> linears = layout_.linears();
  packed_ = runtime::Buffer<Element>(packed_bytes(config, context) / sizeof(Element));
  Element* packed = packed_.data();
  float* const values = parameters_.data();
  for (const LinearLayout& l : linears) {
    const std::size_t size = padded_packed_size(c_.ops, l);
    linears_.push_back({l.N, l.K, values + l.weight, values + l.bias, packed, packed + size});
    packed += 2 * size;
  }
  const auto norm = [&](const NormLayout& n) {
    return kernels::LayerNorm{values + n.gamma, values + n.beta, config_.layer_norm_eps};
  };
  head_ = {config_, layout_, linears_};
  TW_CHECK(config_.num_hidden_layers > 0, "a model without layers");
  const std::size_t head_linears = linears_.size() - 4 * layout_.layers.size();
  for (std::int64_t l = 0; l < config_.num_hidden_layers; ++l) {
    const EncoderLayerLayout& at = layout_.layers[static_cast<std::size_t>(l)];
    const std::size_t first =
        head_linears + 4 * static_cast<std::size_t>(config_.num_hidden_layers - 1 - l);
    layers_.push_back({l, at, linears_[first + 3], linears_[first + 2], linears_[first + 1],
                       linears_[first], norm(at.attention_norm), norm(at.output_norm)});
  }
  layers_.back().rows = head_rows(config_);
  const auto most = std::max(config_.max_position_embeddings, config_.type_vocab_size);
  identity_rows_.resize(static_cast<std::size_t>(most));
  std::iota(identity_rows_.begin(), identity_rows_.end(), 0);
}

template <typename Element>
Model<Element>::~Model() = default;

template <typename Element>
void Model<Element>::pack_rows(std::size_t linear, std::int64_t row_begin, std::int64_t row_end) {
  const Linear<Element>& l = linears_[linear];
  c_.ops.pack_weight(l.weight, l.N, l.K, row_begin, row_end, l.packed_forward, l.packed_backward);
}

template <typename Element>
void Model<Element>::pack_weights() {
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    c_.pool.for_ranges(linears_[i].N, 64,
                       [&](std::int64_t begin, std::int64_t end) { pack_rows(i, begin, end); });
  }
}

template <typename Element>
void Model<Element>::reserve(const BatchLimits& training, std::int64_t shards,
                             const BatchLimits& inference) {
  constexpr Use kUses[] = {Use::kTraining, Use::kInference};
  std::size_t bytes = 0;
  for (const Use use : kUses) {
    const BatchLimits& limits = use == Use::kTraining ? training : inference;
    limits_[static_cast<int>(use)] = limits;
    bytes = std::max(bytes, activation_bytes(config_, c_, limits, shards, use));
  }
  arena_ = runtime::Arena();  // frees the old block before the new one is allocated
  arena_ = runtime::Arena(bytes);
  for (const Use use : kUses) {
    const BatchLimits& limits = limits_[static_cast<int>(use)];
    arena_.reset();
    activations_[static_cast<int>(use)]->allocate(
        arena_, config_, limits, kernel_scratch_bytes(config_, c_, limits, shards, use), use);
  }
}

template <typename Element>
const Element* Model<Element>::input_of(std::size_t layer) const {
  return layer == 0 ? a_->embedded : a_->layers[layer - 1].output;
}

template <typename Element>
kernels::Residual Model<Element>::residual_of_input(std::size_t layer) const {
  if (layer == 0) return {a_->scratch.embedded32, nullptr, {}};
  return layers_[layer - 1].residual_of(a_->layers[layer - 1]);
}

template <typename Element>
std::span<const Element> Model<Element>::forward(const Batch& batch, const DropoutKey& key,
                                                 bool training) {
  const std::int64_t rows = batch.T();
  const std::int64_t H = config_.hidden_size;
  const float* values = parameters_.data();
  const float* types = config_.type_vocab_size > 0 ? values + layout_.type_embeddings : nullptr;
  const auto use = static_cast<int>(training ? Use::kTraining : Use::kInference);
  const BatchLimits& limits = limits_[use];
  TW_CHECK(rows <= limits.tokens && batch.B() <= limits.examples &&
               batch.max_seqlen <= limits.max_seqlen,
           "a batch of {} tokens, {} examples of at most {} tokens, memory for {}, {}, {}", rows,
           batch.B(), batch.max_seqlen, limits.tokens, limits.examples, limits.max_seqlen);
  a_ = activations_[use].get();
  a_->tokens = {batch.token_example.data(), batch.positions.data()};
  counters_.forward += rows;

  const float p = training ? config_.hidden_dropout_prob : 0.0f;
  c_.ops.embed_norm_forward(c_.pool, batch.ids.data(), batch.positions.data(), batch.types.data(),
                            values + layout_.word_embeddings, values + layout_.position_embeddings,
                            types, rows, H,
                            {values + layout_.embedding_norm.gamma,
                             values + layout_.embedding_norm.beta, config_.layer_norm_eps},
                            key.at(-1, DropoutKey::kEmbeddings, p), a_->tokens, a_->embedding_sum,
                            a_->embedding_stats, a_->scratch.embedded32, a_->embedded);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].forward(c_, config_, batch, key, training, input_of(l), residual_of_input(l),
                       a_->layers[l], a_->scratch);
  }
  return head_.forward(c_, config_, batch, key, training, a_->layers.back().output, a_->head,
                       a_->scratch);
}

template <typename Element>
std::span<const float> Model<Element>::losses(const Batch& batch) {
  head_.loss(c_, config_, batch, 1.0f, a_->head);
  return {a_->head.losses, static_cast<std::size_t>(batch.B())};
}

template <typename Element>
void Model<Element>::backward(const Batch& batch, const DropoutKey& key, float loss_scale,
                              const TouchedRows& touched, const GradientSink& sink) {
  const LayerScratch<Element>& scratch = a_->scratch;
  TW_CHECK(sink.groups.size() == batch.groups.size(), "{} gradient vectors for {} groups",
           sink.groups.size(), batch.groups.size());
  counters_.backward += batch.T();

  head_.loss(c_, config_, batch, loss_scale, a_->head);
  head_.backward(c_, config_, batch, key, a_->layers.back().output, a_->head, scratch, sink);
  sink.ready(0, layout_.head_end);

  const Element* d_branch = nullptr;
  for (std::size_t l = layers_.size(); l-- > 0;) {
    // The shared activations are those of the last layer until another layer is recomputed.
    if (config_.gradient_checkpointing && l + 1 < layers_.size()) {
      layers_[l].forward_before_output(c_, config_, batch, key, true, input_of(l),
                                       residual_of_input(l), a_->layers[l], scratch);
    }
    layers_[l].backward(c_, config_, batch, key, input_of(l), a_->layers[l], scratch, d_branch,
                        sink);
    d_branch = scratch.d_input;
  }

  backward_embeddings(batch, key, d_branch, touched, sink);
  sink.ready(layout_.embedding_norm.gamma, layout_.word_embeddings);
  const std::int64_t loss = gradient_count(touched.R()) - 1;
  store_losses(batch, loss_scale, loss, sink);
  sink.ready(layout_.word_embeddings, loss);
  sink.ready(loss, loss + 1);
}

template <typename Element>
void Model<Element>::backward_embeddings(const Batch& batch, const DropoutKey& key,
                                         const Element* d_branch, const TouchedRows& touched,
                                         const GradientSink& sink) {
  const std::int64_t H = config_.hidden_size;
  const LayerScratch<Element>& scratch = a_->scratch;
  const float* values = parameters_.data();
  const kernels::LayerNorm norm{values + layout_.embedding_norm.gamma,
                                values + layout_.embedding_norm.beta, config_.layer_norm_eps};
  c_.ops.dropout_backward(c_.pool, scratch.d_hidden32, d_branch, batch.T(), H,
                          key.at(-1, DropoutKey::kEmbeddings, config_.hidden_dropout_prob),
                          a_->tokens);
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const ShardGroup& group = batch.groups[g];
    float* const gradient = sink.groups[g];
    c_.ops.add_norm_backward(c_.pool, scratch.d_hidden32, nullptr, a_->embedding_sum,
                             a_->embedding_stats, group.token_offsets, H, norm, {}, a_->tokens,
                             nullptr, gradient + layout_.embedding_norm.gamma,
                             gradient + layout_.embedding_norm.beta, scratch.kernel);
    const auto table = [&](std::span<const std::int32_t> ids, const std::int32_t* row_of_id,
                           std::int64_t R, std::int64_t offset, std::int32_t without = -1) {
      rows_.build(ids, group.token_offsets.front(), group.token_offsets.back(), row_of_id, R,
                  without);
      c_.parameter_ops.embedding_backward(
          c_.pool, {scratch.d_hidden32, rows_.occurrences.data(), rows_.row_offsets.data(), R, H,
                    group.token_offsets, gradient + offset});
    };
    table(batch.positions, identity_rows_.data(), config_.max_position_embeddings,
          layout_.position_embeddings);
    if (config_.type_vocab_size > 0) {
      table(batch.types, identity_rows_.data(), config_.type_vocab_size, layout_.type_embeddings);
    }
    table(batch.ids, touched.row_of_id.data(), touched.R(), layout_.word_embeddings,
          config_.padding_idx);
  }
}

template <typename Element>
void Model<Element>::store_losses(const Batch& batch, float loss_scale, std::int64_t index,
                                  const GradientSink& sink) {
  // In the tree of the gradient: within each shard in order, then shards pairwise.
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const auto& offsets = batch.groups[g].example_offsets;
    std::vector<float> sums(offsets.size() - 1, 0.0f);
    for (std::size_t s = 0; s < sums.size(); ++s) {
      for (auto b = offsets[s]; b < offsets[s + 1]; ++b) sums[s] += a_->head.losses[b] * loss_scale;
    }
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (std::size_t s = 0; s < sums.size() / 2; ++s) sums[s] = sums[2 * s] + sums[2 * s + 1];
    }
    sink.groups[g][index] = sums[0];
  }
}

template class Model<float>;
template class Model<bf16>;

}  // namespace tilewright::nn
