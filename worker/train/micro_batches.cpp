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

std::vector<Subtree> MicroBatchPlan::subtrees() const {
  std::vector<Subtree> all;
  for (const auto& micro_batch : micro_batches) {
    for (const Group& group : micro_batch) all.push_back(group.subtree);
  }
  return all;
}

Range MicroBatchPlan::examples() const {
  if (micro_batches.empty()) return {};
  return {micro_batches.front().front().shards.front().begin,
          micro_batches.back().back().shards.back().end};
}

int MicroBatchPlan::gradients() const {
  return micro_batches.size() == 1 ? static_cast<int>(micro_batches[0].size())
                                   : collectives::TreeAccumulator::buffers_needed(subtrees());
}

MicroBatchPlan plan_micro_batches(Range own, int shards, std::int64_t examples,
                                  std::int64_t max_examples) {
  MicroBatchPlan plan;
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
  const std::int64_t begin = examples * rank / world;
  const std::int64_t count = examples * (rank + 1) / world - begin;
  const auto needed = static_cast<std::uint64_t>((count + max_examples - 1) / max_examples);
  const auto micro_batches =
      static_cast<std::int64_t>(std::bit_ceil(std::max<std::uint64_t>(1, needed)));
  MicroBatchPlan plan;
  for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    plan.micro_batches.push_back({{{static_cast<int>(micro_batch), 1},
                                   {{begin + count * micro_batch / micro_batches,
                                     begin + count * (micro_batch + 1) / micro_batches}}}});
  }
  return plan;
}

MicroBatchPlan plan_step(const Settings& settings, int rank, int world, std::int64_t examples) {
  const std::int64_t max_examples = settings.per_device_train_batch_size;
  if (!settings.exact) return plan_plain_micro_batches(rank, world, examples, max_examples);
  const int shards = static_cast<int>(settings.virtual_shards);
  return plan_micro_batches(collectives::shards_of(rank, world, shards), shards, examples,
                            max_examples);
}

std::int64_t max_micro_batch_examples(int shards, std::int64_t global_batch,
                                      std::int64_t max_examples) {
  return std::max(max_examples, (global_batch + shards - 1) / shards);
}

}  // namespace tilewright::train
