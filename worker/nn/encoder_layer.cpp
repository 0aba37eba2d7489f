#include "worker/nn/encoder_layer.h"

#include <algorithm>
#include <utility>

namespace tilewright::nn {
namespace {

template <typename Element>
kernels::AttentionForward<Element> attention(const EncoderConfig& config, const Batch& batch,
                                             kernels::Dropout dropout,
                                             const LayerActivations<Element>& a) {
  kernels::AttentionForward<Element> attention;
  attention.qkv = a.qkv;
  attention.cu_seqlens = batch.cu_seqlens.data();
  attention.example = batch.example.data();
  attention.attended = batch.lengths.data();
  attention.B = batch.B();
  attention.heads = config.num_attention_heads;
  attention.head_size = config.head_size();
  attention.max_seqlen = batch.max_seqlen;
  attention.dropout = dropout;
  attention.context = a.context;
  attention.log_sum_exp = a.log_sum_exp;
  return attention;
}

// Backward of a residual connection and its norm, scratch.d_hidden32 in place, with the norm's
// gradient for each group of shards.
template <typename Element>
void norm_backward(const Context<Element>& c, const kernels::LayerNorm& norm,
                   const NormLayout& layout, std::int64_t H, const Batch& batch, Rows rows,
                   const kernels::Dropout& dropout, const Element* d_branch, const float* sum,
                   const float* stats, const LayerScratch<Element>& scratch,
                   const GradientSink& sink) {
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    c.ops.add_norm_backward(c.pool, scratch.d_hidden32, d_branch, sum, stats,
                            batch.groups[g].offsets(rows), H, norm, dropout, batch.identity(rows),
                            scratch.d_branch, sink.groups[g] + layout.gamma,
                            sink.groups[g] + layout.beta, scratch.kernel);
  }
}

// to [B, H] = the rows of the first tokens of from [T, H].
template <typename Value>
void gather_first_tokens(const Batch& batch, std::int64_t H, const Value* from, Value* to) {
  for (std::int64_t b = 0; b < batch.B(); ++b) {
    std::copy_n(from + batch.cu_seqlens[static_cast<std::size_t>(b)] * H, H, to + b * H);
  }
}

// The inverse, in place: the B rows become those of the first tokens, and the other rows zero.
template <typename Value>
void scatter_first_tokens(runtime::ThreadPool& pool, const Batch& batch, std::int64_t H,
                          Value* rows) {
  for (std::int64_t b = batch.B(); b-- > 0;) {  // a row moves down, where no row is left
    Value* row = rows + batch.cu_seqlens[static_cast<std::size_t>(b)] * H;
    if (row != rows + b * H) std::copy_n(rows + b * H, H, row);
  }
  pool.for_ranges(batch.T(), kTaskRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (batch.positions[static_cast<std::size_t>(t)] != 0) std::fill_n(rows + t * H, H, Value{});
    }
  });
}

}  // namespace

template <typename Element>
void weight_gradient(const Context<Element>& c, const LinearLayout& linear, const Batch& batch,
                     Rows rows, const Element* x, const Element* dy, std::byte* scratch,
                     const GradientSink& sink) {
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    c.ops.linear_backward_weight(c.pool, x, dy, batch.groups[g].offsets(rows), linear.K, linear.N,
                                 sink.groups[g] + linear.weight, sink.groups[g] + linear.bias,
                                 scratch);
  }
}

template <typename Element>
void LayerActivations<Element>::allocate_before_output(runtime::Arena& arena,
                                                       const EncoderConfig& config,
                                                       std::int64_t tokens, std::int64_t count) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t I = config.intermediate_size;
  qkv = arena.take<Element>(tokens * 3 * H);
  context = arena.take<Element>(tokens * H);
  log_sum_exp = arena.take<float>(tokens * config.num_attention_heads);
  row_context = context;
  attention_sum = arena.take<float>(count * H);
  attention_stats = arena.take<float>(count * 2);
  attended = arena.take<Element>(count * H);
  intermediate = arena.take<Element>(count * I);
  activated = arena.take<Element>(count * I);
}

template <typename Element>
void LayerActivations<Element>::allocate_first_tokens(runtime::Arena& arena,
                                                      const EncoderConfig& config,
                                                      std::int64_t examples) {
  row_context = arena.take<Element>(examples * config.hidden_size);
  row_residual = arena.take<float>(examples * config.hidden_size);
  row_stats = arena.take<float>(examples * 2);
}

template <typename Element>
void LayerActivations<Element>::allocate_output(runtime::Arena& arena, const EncoderConfig& config,
                                                std::int64_t count) {
  output_sum = arena.take<float>(count * config.hidden_size);
  output_stats = arena.take<float>(count * 2);
  output = arena.take<Element>(count * config.hidden_size);
}

template <typename Element>
void LayerScratch<Element>::allocate(runtime::Arena& arena, const EncoderConfig& config,
                                     std::int64_t tokens, std::size_t kernel_bytes, Use use) {
  const std::int64_t H = config.hidden_size;
  branch = arena.take<Element>(tokens * H);
  embedded32 = arena.take<float>(tokens * H);
  kernel = arena.take<std::byte>(static_cast<std::int64_t>(kernel_bytes));
  if (use == Use::kInference) return;
  d_hidden32 = arena.take<float>(tokens * H);
  d_branch = branch;  // backward begins when forward has read branch
  d_input = arena.take<Element>(tokens * H);
  d_intermediate = arena.take<Element>(tokens * std::max(config.intermediate_size, 3 * H));
  d_qkv = d_intermediate;  // attention's backward comes after the last use of d_intermediate
}

template <typename Element>
void EncoderLayer<Element>::forward(const Context<Element>& c, const EncoderConfig& config,
                                    const Batch& batch, const DropoutKey& key, bool training,
                                    const Element* input, kernels::Residual residual,
                                    const LayerActivations<Element>& a,
                                    const LayerScratch<Element>& scratch) const {
  forward_before_output(c, config, batch, key, training, input, residual, a, scratch);
  const std::int64_t R = batch.count(rows);
  const float p_hidden = training ? config.hidden_dropout_prob : 0.0f;
  output.forward(c, a.activated, R, scratch.branch, scratch.kernel);
  c.ops.add_norm_forward(
      c.pool, scratch.branch, {a.attention_sum, a.attention_stats, attention_norm}, R,
      config.hidden_size, output_norm, key.at(index, DropoutKey::kOutput, p_hidden),
      batch.identity(rows), a.output_sum, a.output_stats, a.output);
}

template <typename Element>
void EncoderLayer<Element>::forward_before_output(const Context<Element>& c,
                                                  const EncoderConfig& config, const Batch& batch,
                                                  const DropoutKey& key, bool training,
                                                  const Element* input, kernels::Residual residual,
                                                  const LayerActivations<Element>& a,
                                                  const LayerScratch<Element>& scratch) const {
  const std::int64_t H = config.hidden_size;
  const float p_attended = training ? config.attention_output_dropout_prob() : 0.0f;
  const float p_attention = training ? config.attention_probs_dropout_prob : 0.0f;

  qkv.forward(c, input, batch.T(), a.qkv, scratch.kernel);
  c.ops.attention_forward(
      c.pool, attention(config, batch, key.at(index, DropoutKey::kProbabilities, p_attention), a),
      scratch.kernel);
  if (rows == Rows::kExamples) {
    gather_first_tokens(batch, H, a.context, a.row_context);
    gather_first_tokens(batch, H, residual.values, a.row_residual);
    residual.values = a.row_residual;
    if (residual.stats != nullptr) {
      gather_first_tokens(batch, 2, residual.stats, a.row_stats);
      residual.stats = a.row_stats;
    }
  }
  const std::int64_t R = batch.count(rows);
  attention_output.forward(c, a.row_context, R, scratch.branch, scratch.kernel);
  c.ops.add_norm_forward(c.pool, scratch.branch, residual, R, H, attention_norm,
                         key.at(index, DropoutKey::kAttentionOutput, p_attended),
                         batch.identity(rows), a.attention_sum, a.attention_stats, a.attended);
  intermediate.forward(c, a.attended, R, a.intermediate, scratch.kernel);
  c.ops.gelu_forward(c.pool, a.intermediate, R * config.intermediate_size, a.activated);
}

template <typename Element>
void EncoderLayer<Element>::backward(const Context<Element>& c, const EncoderConfig& config,
                                     const Batch& batch, const DropoutKey& key,
                                     const Element* input, const LayerActivations<Element>& a,
                                     const LayerScratch<Element>& scratch, const Element* d_branch,
                                     const GradientSink& sink) const {
  const std::int64_t R = batch.count(rows);
  const std::int64_t H = config.hidden_size;

  norm_backward(c, output_norm, layout.output_norm, H, batch, rows,
                key.at(index, DropoutKey::kOutput, config.hidden_dropout_prob), d_branch,
                a.output_sum, a.output_stats, scratch, sink);
  weight_gradient(c, layout.output, batch, rows, a.activated, scratch.d_branch, scratch.kernel,
                  sink);
  output.backward_input(c, scratch.d_branch, R, scratch.d_intermediate, scratch.kernel);
  c.ops.gelu_backward(c.pool, a.intermediate, scratch.d_intermediate, R * config.intermediate_size,
                      scratch.d_intermediate);
  weight_gradient(c, layout.intermediate, batch, rows, a.attended, scratch.d_intermediate,
                  scratch.kernel, sink);
  intermediate.backward_input(c, scratch.d_intermediate, R, scratch.d_input, scratch.kernel);

  norm_backward(c, attention_norm, layout.attention_norm, H, batch, rows,
                key.at(index, DropoutKey::kAttentionOutput, config.attention_output_dropout_prob()),
                scratch.d_input, a.attention_sum, a.attention_stats, scratch, sink);
  weight_gradient(c, layout.attention_output, batch, rows, a.row_context, scratch.d_branch,
                  scratch.kernel, sink);
  attention_output.backward_input(c, scratch.d_branch, R, scratch.d_input, scratch.kernel);
  if (rows == Rows::kExamples) {
    scatter_first_tokens(c.pool, batch, H, scratch.d_input);
    scatter_first_tokens(c.pool, batch, H, scratch.d_hidden32);
  }
  kernels::AttentionBackward<Element> back;
  back.forward =
      attention(config, batch,
                key.at(index, DropoutKey::kProbabilities, config.attention_probs_dropout_prob), a);
  back.d_context = scratch.d_input;
  back.d_qkv = scratch.d_qkv;
  c.ops.attention_backward(c.pool, back, scratch.kernel);
  weight_gradient(c, layout.qkv, batch, Rows::kTokens, input, scratch.d_qkv, scratch.kernel, sink);
  qkv.backward_input(c, scratch.d_qkv, batch.T(), scratch.d_input, scratch.kernel);
  sink.ready(layout.begin, layout.end);
}

template void weight_gradient(const Context<float>&, const LinearLayout&, const Batch&, Rows,
                              const float*, const float*, std::byte*, const GradientSink&);
template void weight_gradient(const Context<bf16>&, const LinearLayout&, const Batch&, Rows,
                              const bf16*, const bf16*, std::byte*, const GradientSink&);
template struct LayerActivations<float>;
template struct LayerActivations<bf16>;
template struct LayerScratch<float>;
template struct LayerScratch<bf16>;
template struct EncoderLayer<float>;
template struct EncoderLayer<bf16>;

}  // namespace tilewright::nn
