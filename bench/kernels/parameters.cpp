// Cases for the fp32 kernels on the parameters and gradients of one encoder layer, and for the sum
// of the collectives.
#include "bench/kernels/cases.h"
#include "worker/collectives/sum.h"

namespace tilewright::bench {
namespace {

std::int64_t layer_parameters(const Model& model) {
  return 4 * model.hidden * model.hidden + 2 * model.hidden * model.intermediate;
}

Work adamw(ThreadPool& pool, Isa isa, const Model& model) {
  const auto ops = kernels::make_parameter_ops(isa);
  const std::int64_t count = layer_parameters(model);
  const auto gradient = random_buffer<float>(count);
  const auto parameter = random_buffer<float>(count);
  const auto m = random_buffer<float>(count);
  const auto v = random_buffer<float>(count);
  for (float& x : v->span()) x *= x;
  return {28.0 * static_cast<double>(count), 0, [=, &pool] {
            const kernels::AdamW step{.learning_rate = 1e-5f, .weight_decay = 0.01f};
            pool.for_ranges(count, 16 * kernels::kNormBlock, [&](std::int64_t at, std::int64_t to) {
              ops.adamw(step, to - at, gradient->data() + at, parameter->data() + at,
                        m->data() + at, v->data() + at);
            });
          }};
}

Work gradient_norm(ThreadPool& pool, Isa isa, const Model& model) {
  const auto ops = kernels::make_parameter_ops(isa);
  const std::int64_t count = layer_parameters(model);
  const auto gradient = random_buffer<float>(count);
  const auto sums =
      std::make_shared<Buffer<double>>(static_cast<std::size_t>(count / kernels::kNormBlock + 1));
  return {4.0 * static_cast<double>(count), 0, [=, &pool] {
            pool.for_ranges(count, 16 * kernels::kNormBlock, [&](std::int64_t at, std::int64_t to) {
              for (; at < to; at += kernels::kNormBlock) {
                (*sums)[static_cast<std::size_t>(at / kernels::kNormBlock)] = ops.sum_of_squares(
                    gradient->data() + at, std::min(kernels::kNormBlock, to - at));
              }
            });
          }};
}

// Every id occurs in two rows.
Work embedding_backward(ThreadPool& pool, Isa isa, const Model& model) {
  const auto ops = kernels::make_parameter_ops(isa);
  const std::int64_t rows = model.rows();
  const auto d_sum = random_buffer<float>(rows * model.hidden);
  const auto grad = random_buffer<float>(rows / 2 * model.hidden);
  const auto shards = offsets(rows, 8);
  const auto ids = static_cast<std::size_t>(rows / 2);
  std::vector<std::int32_t> occurrences(2 * ids);
  std::vector<std::int32_t> row_offsets(ids + 1);
  for (std::size_t id = 0; id < ids; ++id) {
    occurrences[2 * id] = static_cast<std::int32_t>(id);
    occurrences[2 * id + 1] = static_cast<std::int32_t>(id + ids);
    row_offsets[id + 1] = static_cast<std::int32_t>(2 * (id + 1));
  }
  return {6.0 * static_cast<double>(rows * model.hidden), 0, [=, &pool] {
            kernels::EmbeddingBackward e;
            e.d_sum = d_sum->data();
            e.occurrences = occurrences.data();
            e.row_offsets = row_offsets.data();
            e.R = rows / 2;
            e.H = model.hidden;
            e.shards = shards;
            e.grad = grad->data();
            ops.embedding_backward(pool, e);
          }};
}

// Eight parts of a chunk on one thread, as in the gradient exchange.
Work tree_sum(ThreadPool& /*pool*/, Isa /*isa*/, const Model& model) {
  constexpr int kParts = 8;
  const std::int64_t count = model.hidden * 256;
  const auto parts = random_buffer<float>(count * kParts);
  const auto out = random_buffer<float>(count);
  std::vector<collectives::Subtree> leaves;
  leaves.reserve(kParts);
  for (int i = 0; i < kParts; ++i) leaves.push_back({i, 1});
  const auto merges = collectives::merges_of(leaves);
  return {12.0 * (kParts - 1) * static_cast<double>(count), 0, [=] {
            std::vector<float*> slots;
            slots.reserve(kParts);
            for (int i = 0; i < kParts; ++i) slots.push_back(parts->data() + i * count);
            float* const sum = out->data();
            collectives::run_merges(runtime::Precision::kFp32, merges, slots, {&sum, 1}, count);
          }};
}

}  // namespace

std::vector<Case> parameter_cases() {
  return {{"adamw", adamw},
          {"sum_of_squares", gradient_norm},
          {"embedding_backward", embedding_backward},
          {"tree_sum", tree_sum}};
}

}  // namespace tilewright::bench
