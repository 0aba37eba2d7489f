// Cases for the activation kernels in bf16, with dropout 0.1 where training uses it.
#include "bench/kernels/cases.h"

namespace tilewright::bench {
namespace {

using kernels::Dropout;
using kernels::LayerNorm;
using kernels::RowIdentity;

constexpr Dropout kDropout = {
    .seed = 1, .step = 2, .site = 3, .threshold = 6554, .scale = 65536.0f / (65536.0f - 6554.0f)};

// Operands of the kernels on rows of `columns` elements.
struct RowBuffers {
  RowBuffers(const Model& model, Isa isa, std::int64_t row_count, std::int64_t width)
      : ops(kernels::make_ops<bf16>(isa)),
        count(row_count),
        columns(width),
        example(modulo_buffer(row_count, model.examples)),
        position(modulo_buffer(row_count, model.seqlen)),
        x(random_buffer<bf16>(row_count * width)),
        dy(random_buffer<bf16>(row_count * width)),
        y(random_buffer<bf16>(row_count * width)),
        a(random_buffer<float>(row_count * width)),
        b(random_buffer<float>(row_count * width)),
        c(random_buffer<float>(row_count * width)),
        stats(random_buffer<float>(row_count * 2)),
        gamma(random_buffer<float>(width)) {}

  RowIdentity identity() const { return {example->data(), position->data()}; }
  LayerNorm norm() const { return {gamma->data(), gamma->data(), 1e-12f}; }
  double bytes(int each) const { return static_cast<double>(count * columns) * each; }

  kernels::Ops<bf16> ops;
  std::int64_t count;
  std::int64_t columns;
  std::shared_ptr<Buffer<std::int32_t>> example, position;
  std::shared_ptr<Buffer<bf16>> x, dy, y;
  std::shared_ptr<Buffer<float>> a, b, c, stats, gamma;
};

Work embed_norm(ThreadPool& pool, Isa isa, const Model& model) {
  constexpr std::int64_t kVocabulary = 30522;
  const RowBuffers r(model, isa, model.rows(), model.hidden);
  const auto ids = modulo_buffer(r.count, kVocabulary);
  const auto types = modulo_buffer(r.count, 1);
  const auto word = random_buffer<float>(kVocabulary * r.columns);
  const auto position = random_buffer<float>(512 * r.columns);
  return {r.bytes(4 + 4 + 4 + 4 + 2), 0, [=, &pool] {
            r.ops.embed_norm_forward(pool, ids->data(), r.position->data(), types->data(),
                                     word->data(), position->data(), r.gamma->data(), r.count,
                                     r.columns, r.norm(), kDropout, r.identity(), r.a->data(),
                                     r.stats->data(), r.b->data(), r.y->data());
          }};
}

Work add_norm_forward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.rows(), model.hidden);
  return {r.bytes(2 + 4 + 4 + 2), 0, [=, &pool] {
            r.ops.add_norm_forward(pool, r.x->data(), {r.c->data(), r.b->data(), r.norm()}, r.count,
                                   r.columns, r.norm(), kDropout, r.identity(), r.a->data(),
                                   r.stats->data(), r.y->data());
          }};
}

Work add_norm_backward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.rows(), model.hidden);
  const auto shards = offsets(r.count, 8);
  const auto scratch = random_buffer<float>(static_cast<std::int64_t>(
      r.ops.add_norm_backward_scratch(r.count, 8, r.columns) / sizeof(float) + 1));
  return {r.bytes(4 + 2 + 4 + 4 + 2), 0, [=, &pool] {
            r.ops.add_norm_backward(pool, r.a->data(), r.dy->data(), r.b->data(), r.stats->data(),
                                    shards, r.columns, r.norm(), kDropout, r.identity(),
                                    r.y->data(), r.c->data(), r.c->data() + r.columns,
                                    reinterpret_cast<std::byte*>(scratch->data()));
          }};
}

Work dropout_backward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.rows(), model.hidden);
  return {r.bytes(4 + 4 + 2), 0, [=, &pool] {
            r.ops.dropout_backward(pool, r.a->data(), r.dy->data(), r.count, r.columns, kDropout,
                                   r.identity());
          }};
}

Work gelu_forward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.rows(), model.intermediate);
  return {r.bytes(2 + 2), 0,
          [=, &pool] { r.ops.gelu_forward(pool, r.x->data(), r.count * r.columns, r.y->data()); }};
}

Work gelu_backward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.rows(), model.intermediate);
  return {r.bytes(2 + 2 + 2), 0, [=, &pool] {
            r.ops.gelu_backward(pool, r.x->data(), r.dy->data(), r.count * r.columns, r.y->data());
          }};
}

Work pooler_forward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.examples, model.hidden);
  const auto activation = random_buffer<bf16>(r.count * r.columns);
  return {r.bytes(2 + 2 + 2), 0, [=, &pool] {
            r.ops.tanh_dropout_forward(pool, r.x->data(), r.count, r.columns, kDropout,
                                       r.identity(), activation->data(), r.y->data());
          }};
}

Work pooler_backward(ThreadPool& pool, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.examples, model.hidden);
  return {r.bytes(2 + 2 + 2), 0, [=, &pool] {
            r.ops.tanh_dropout_backward(pool, r.x->data(), r.dy->data(), r.count, r.columns,
                                        kDropout, r.identity(), r.y->data());
          }};
}

Work cross_entropy(ThreadPool& /*pool*/, Isa isa, const Model& model) {
  const RowBuffers r(model, isa, model.examples,
                     model.seqlen);  // one class per position, as in SQuAD
  const auto labels = modulo_buffer(r.count, r.columns);
  return {r.bytes(2 + 2), 0, [=] {
            r.ops.softmax_cross_entropy(r.x->data(), labels->data(), r.count, r.columns, 0.1f, 0.0f,
                                        r.a->data(), r.y->data());
          }};
}

Work attention(ThreadPool& pool, Isa isa, const Model& model, bool backward) {
  const kernels::Ops<bf16> ops = kernels::make_ops<bf16>(isa);
  const std::int64_t rows = model.rows();
  const auto qkv = random_buffer<bf16>(rows * 3 * model.hidden);
  const auto d_qkv = random_buffer<bf16>(rows * 3 * model.hidden);
  const auto context = random_buffer<bf16>(rows * model.hidden);
  const auto d_context = random_buffer<bf16>(rows * model.hidden);
  const auto log_sum_exp = random_buffer<float>(rows * model.heads);
  const auto cu_seqlens = offsets(rows, model.examples);
  const auto example = modulo_buffer(model.examples, model.examples);
  const std::int64_t head_size = model.hidden / model.heads;
  const auto scratch = std::make_shared<Buffer<std::byte>>(
      ops.attention_scratch(model.seqlen, model.heads, head_size, pool.size()));
  const auto arguments = [=] {
    kernels::AttentionForward<bf16> a;
    a.qkv = qkv->data();
    a.cu_seqlens = cu_seqlens.data();
    a.example = example->data();
    a.B = model.examples;
    a.heads = model.heads;
    a.head_size = head_size;
    a.max_seqlen = model.seqlen;
    a.dropout = kDropout;
    a.context = context->data();
    a.log_sum_exp = log_sum_exp->data();
    return a;
  };
  ops.attention_forward(pool, arguments(),
                        scratch->data());  // computes the log-sum-exp for backward
  // Products of S x S x D per head: 2 in forward, 5 in backward, which recomputes the scores.
  const double product = 2.0 * static_cast<double>(rows * model.seqlen * model.hidden);
  const double elements = static_cast<double>(rows * model.hidden);
  if (!backward) {
    return {elements * (6 + 2), 2 * product,
            [=, &pool] { ops.attention_forward(pool, arguments(), scratch->data()); }};
  }
  return {elements * (6 + 2 + 2 + 6), 5 * product, [=, &pool] {
            ops.attention_backward(pool, {arguments(), d_context->data(), d_qkv->data()},
                                   scratch->data());
          }};
}

}  // namespace

std::vector<Case> activation_cases() {
  return {
      {"attention_forward",
       [](ThreadPool& pool, Isa isa, const Model& m) { return attention(pool, isa, m, false); }},
      {"attention_backward",
       [](ThreadPool& pool, Isa isa, const Model& m) { return attention(pool, isa, m, true); }},
      {"embed_norm_forward", embed_norm},
      {"add_norm_forward", add_norm_forward},
      {"add_norm_backward", add_norm_backward},
      {"dropout_backward", dropout_backward},
      {"gelu_forward", gelu_forward},
      {"gelu_backward", gelu_backward},
      {"tanh_dropout_forward", pooler_forward},
      {"tanh_dropout_backward", pooler_backward},
      {"softmax_cross_entropy", cross_entropy},
  };
}

}  // namespace tilewright::bench
