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

// to [B, H] = the rows of the first tokens of from [T, H]. `to` may be `from`.
template <typename Value>
void gather_first_tokens(const Batch& batch, std::int64_t H, const Value* from, Value* to) {
  for (std::int64_t b = 0; b < batch.B(); ++b) {
    const Value* row = from + batch.cu_seqlens[static_cast<std::size_t>(b)] * H;
    if (row != to + b * H) std::copy_n(row, H, to + b * H);  // never to a row that is still needed
  }
}

// The inverse, in place: the B rows become those of the first tokens, and the other rows zero.
template <typename Value>
void scatter_first_tokens(const Batch& batch, std::int64_t H, Value* rows) {
  for (std::int64_t b = batch.B(); b-- > 0;) {
    const auto at = static_cast<std::size_t>(b);
    Value* row = rows + batch.cu_seqlens[at] * H;
    std::fill(row + H, rows + batch.cu_seqlens[at + 1] * H, Value{});
    if (row != rows + b * H) std::copy_n(rows + b * H, H, row);
  }
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
void LayerActivations<Element>::allocate(runtime::Arena& arena, const EncoderConfig& config,
                                         std::int64_t tokens, std::int64_t examples, Rows rows) {
  const std::int64_t H = config.hidden_size;
  const std::int64_t I = config.intermediate_size;
  const std::int64_t R = rows == Rows::kTokens ? tokens : examples;
  qkv = arena.take<Element>(tokens * 3 * H);
  context = arena.take<Element>(tokens * H);
  log_sum_exp = arena.take<float>(tokens * config.num_attention_heads);
  row_context = rows == Rows::kTokens ? context : arena.take<Element>(R * H);
  attention_sum = arena.take<float>(R * H);
  attention_stats = arena.take<float>(R * 2);
  attended = arena.take<Element>(R * H);
  intermediate = arena.take<Element>(R * I);
  activated = arena.take<Element>(R * I);
  output_sum = arena.take<float>(R * H);
  output_stats = arena.take<float>(R * 2);
  output = arena.take<Element>(R * H);
}

template <typename Element>
void LayerScratch<Element>::allocate(runtime::Arena& arena, const EncoderConfig& config,
                                     std::int64_t tokens, std::size_t kernel_bytes, Use use) {
  const std::int64_t H = config.hidden_size;
  branch = arena.take<Element>(tokens * H);
  hidden32 = arena.take<float>(tokens * H);
  row_stats = arena.take<float>(tokens * 2);
  kernel = arena.take<std::byte>(static_cast<std::int64_t>(kernel_bytes));
  if (use == Use::kInference) return;
  d_hidden32 = arena.take<float>(tokens * H);
  d_branch = arena.take<Element>(tokens * H);
  d_input = arena.take<Element>(tokens * H);
  d_intermediate = arena.take<Element>(tokens * config.intermediate_size);
  d_qkv = arena.take<Element>(tokens * 3 * H);
}

template <typename Element>
void EncoderLayer<Element>::forward(const Context<Element>& c, const EncoderConfig& config,
                                    const Batch& batch, const DropoutKey& key, bool training,
                                    const Element* input, kernels::Residual residual,
                                    const LayerActivations<Element>& a,
                                    const LayerScratch<Element>& scratch) const {
  const std::int64_t H = config.hidden_size;
  const float p_hidden = training ? config.hidden_dropout_prob : 0.0f;
  const float p_attended = training ? config.attention_output_dropout_prob() : 0.0f;
  const float p_attention = training ? config.attention_probs_dropout_prob : 0.0f;

  qkv.forward(c, input, batch.T(), a.qkv, scratch.kernel);
  c.ops.attention_forward(
      c.pool, attention(config, batch, key.at(index, DropoutKey::kProbabilities, p_attention), a),
      scratch.kernel);
  if (rows == Rows::kExamples) {
    gather_first_tokens(batch, H, a.context, a.row_context);
    gather_first_tokens(batch, H, residual.values, scratch.hidden32);
    residual.values = scratch.hidden32;
    if (residual.stats != nullptr) {
      gather_first_tokens(batch, 2, residual.stats, scratch.row_stats);
      residual.stats = scratch.row_stats;
    }
  }
  const std::int64_t R = batch.count(rows);
  const kernels::RowIdentity identity = batch.identity(rows);
  attention_output.forward(c, a.row_context, R, scratch.branch, scratch.kernel);
  c.ops.add_norm_forward(c.pool, scratch.branch, residual, R, H, attention_norm,
                         key.at(index, DropoutKey::kAttentionOutput, p_attended), identity,
                         a.attention_sum, a.attention_stats, a.attended);

  intermediate.forward(c, a.attended, R, a.intermediate, scratch.kernel);
  c.ops.gelu_forward(c.pool, a.intermediate, R * config.intermediate_size, a.activated);
  output.forward(c, a.activated, R, scratch.branch, scratch.kernel);
  c.ops.add_norm_forward(c.pool, scratch.branch,
                         {a.attention_sum, a.attention_stats, attention_norm}, R, H, output_norm,
                         key.at(index, DropoutKey::kOutput, p_hidden), identity, a.output_sum,
                         a.output_stats, a.output);
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
    scatter_first_tokens(batch, H, scratch.d_input);
    scatter_first_tokens(batch, H, scratch.d_hidden32);
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
