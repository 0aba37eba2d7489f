#include "worker/train/micro_batches.h"

#include <algorithm>
#include <bit>

#include "worker/collectives/tree_accumulator.h"

namespace tilewright::train {
namespace {

Range examples_of(const Subtree& subtree, int shards, std::int64_t examples) {
  return {collectives::shard_examples(subtree.begin, shards, examples).begin,
          collectives::shard_examples(subtree.end() - 1, shards, examples).end};
}

Group make_group(const Subtree& subtree, int shards, std::int64_t examples) {
  Group group{subtree, {}};
  for (int shard = subtree.begin; shard < subtree.end(); ++shard) {
    group.shards.push_back(collectives::shard_examples(shard, shards, examples));
  }
  return group;
}

void halve(const Subtree& subtree, int shards, std::int64_t examples, std::int64_t max_examples,
           MicroBatchPlan& plan) {
  if (subtree.size == 1 || examples_of(subtree, shards, examples).size() <= max_examples) {
    plan.micro_batches.push_back({make_group(subtree, shards, examples)});
    return;
  }
  const int half = subtree.size / 2;
  halve({subtree.begin, half}, shards, examples, max_examples, plan);
  halve({subtree.begin + half, half}, shards, examples, max_examples, plan);
}

}  // namespace

Range equal_share(int rank, int world, std::int64_t examples) {
  return {examples * rank / world, examples * (rank + 1) / world};
}

std::vector<Subtree> MicroBatchPlan::subtrees() const {
  std::vector<Subtree> all;
  for (const auto& micro_batch : micro_batches) {
    for (const Group& group : micro_batch) all.push_back(group.subtree);
  }
  return all;
}

int MicroBatchPlan::gradients() const {
  return micro_batches.size() == 1 ? static_cast<int>(micro_batches[0].size())
                                   : collectives::TreeAccumulator::buffers_needed(subtrees());
}

MicroBatchPlan plan_micro_batches(Range own, int shards, std::int64_t examples,
                                  std::int64_t max_examples, ShardGradients gradients) {
  MicroBatchPlan plan;
  if (gradients == ShardGradients::kSeparate) {
    for (auto shard = static_cast<int>(own.begin); shard < static_cast<int>(own.end); ++shard) {
      plan.micro_batches.push_back({make_group({shard, 1}, shards, examples)});
    }
    return plan;
  }
  const std::vector<Subtree> subtrees = collectives::aligned_subtrees(own);
  if (subtrees.empty()) return plan;
  const std::int64_t all = examples_of(subtrees.back(), shards, examples).end -
                           examples_of(subtrees.front(), shards, examples).begin;
  if (all <= max_examples) {
    plan.micro_batches.emplace_back();
    for (const Subtree& subtree : subtrees) {
      plan.micro_batches[0].push_back(make_group(subtree, shards, examples));
    }
    return plan;
  }
  for (const Subtree& subtree : subtrees) halve(subtree, shards, examples, max_examples, plan);
  return plan;
}

MicroBatchPlan plan_plain_micro_batches(int rank, int world, std::int64_t examples,
                                        std::int64_t max_examples) {
  const auto [begin, end] = equal_share(rank, world, examples);
  const std::int64_t count = end - begin;
  const auto needed = static_cast<std::uint64_t>((count + max_examples - 1) / max_examples);
  const auto micro_batches = static_cast<int>(std::bit_ceil(std::max<std::uint64_t>(1, needed)));
  MicroBatchPlan plan;
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const Range part = equal_share(micro_batch, micro_batches, count);
    plan.micro_batches.push_back({{{micro_batch, 1}, {{begin + part.begin, begin + part.end}}}});
  }
  return plan;
}

MicroBatchPlan plan_shards(const Settings& settings, Range own, std::int64_t examples) {
  return plan_micro_batches(
      own, static_cast<int>(settings.virtual_shards), examples,
      settings.per_device_train_batch_size,
      settings.rounds_gradients() ? ShardGradients::kSeparate : ShardGradients::kSummed);
}

MicroBatchPlan plan_step(const Settings& settings, std::span<const Range> split, int rank,
                         std::int64_t examples) {
  if (settings.exact) return plan_shards(settings, split[static_cast<std::size_t>(rank)], examples);
  return plan_plain_micro_batches(rank, static_cast<int>(split.size()), examples,
                                  settings.per_device_train_batch_size);
}

Range examples_of_rank(const Settings& settings, std::span<const Range> split, int rank,
                       std::int64_t examples) {
  if (!settings.exact) return equal_share(rank, static_cast<int>(split.size()), examples);
  const Range& own = split[static_cast<std::size_t>(rank)];
  if (own.size() == 0) return {};
  const int shards = static_cast<int>(settings.virtual_shards);
  return {collectives::shard_examples(static_cast<int>(own.begin), shards, examples).begin,
          collectives::shard_examples(static_cast<int>(own.end) - 1, shards, examples).end};
}

std::int64_t max_micro_batch_examples(int shards, std::int64_t global_batch,
                                      std::int64_t max_examples) {
  return std::max(max_examples, (global_batch + shards - 1) / shards);
}

}  // namespace tilewright::train
