#include "worker/train/passes.h"

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
           PassPlan& plan) {
  if (subtree.size == 1 || examples_of(subtree, shards, examples).size() <= max_examples) {
    plan.passes.push_back({make_group(subtree, shards, examples)});
    return;
  }
  const int half = subtree.size / 2;
  halve({subtree.begin, half}, shards, examples, max_examples, plan);
  halve({subtree.begin + half, half}, shards, examples, max_examples, plan);
}

}  // namespace

std::vector<Subtree> PassPlan::subtrees() const {
  std::vector<Subtree> all;
  for (const auto& pass : passes) {
    for (const Group& group : pass) all.push_back(group.subtree);
  }
  return all;
}

Range PassPlan::examples() const {
  if (passes.empty()) return {};
  return {passes.front().front().shards.front().begin, passes.back().back().shards.back().end};
}

int PassPlan::gradients() const {
  return passes.size() == 1 ? static_cast<int>(passes[0].size())
                            : collectives::TreeAccumulator::buffers_needed(subtrees());
}

PassPlan plan_passes(Range own, int shards, std::int64_t examples, std::int64_t max_examples) {
  PassPlan plan;
  const std::vector<Subtree> subtrees = collectives::aligned_subtrees(own);
  if (subtrees.empty()) return plan;
  const std::int64_t all = examples_of(subtrees.back(), shards, examples).end -
                           examples_of(subtrees.front(), shards, examples).begin;
  if (all <= max_examples) {
    plan.passes.emplace_back();
    for (const Subtree& subtree : subtrees) {
      plan.passes[0].push_back(make_group(subtree, shards, examples));
    }
    return plan;
  }
  for (const Subtree& subtree : subtrees) halve(subtree, shards, examples, max_examples, plan);
  return plan;
}

PassPlan plan_plain_passes(int rank, int world, std::int64_t examples, std::int64_t max_examples) {
  const std::int64_t begin = examples * rank / world;
  const std::int64_t count = examples * (rank + 1) / world - begin;
  const auto needed = static_cast<std::uint64_t>((count + max_examples - 1) / max_examples);
  const auto passes = static_cast<std::int64_t>(std::bit_ceil(std::max<std::uint64_t>(1, needed)));
  PassPlan plan;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    plan.passes.push_back(
        {{{static_cast<int>(pass), 1},
          {{begin + count * pass / passes, begin + count * (pass + 1) / passes}}}});
  }
  return plan;
}

std::int64_t most_examples_of_a_pass(int shards, std::int64_t global_batch,
                                     std::int64_t max_examples) {
  return std::max(max_examples, (global_batch + shards - 1) / shards);
}

}  // namespace tilewright::train
