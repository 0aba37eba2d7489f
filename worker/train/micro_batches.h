// Splits a worker's shards of an optimizer step into micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/shard_tree.h"
#include "worker/train/settings.h"

namespace tilewright::train {

using collectives::Range;
using collectives::Subtree;

// The examples of a rank where shards do not matter: consecutive, sizes differing by at most one.
Range equal_share(int rank, int world, std::int64_t examples);

// A subtree of shards, and for each of its shards the range of examples in the global batch.
struct Group {
  Subtree subtree;
  std::vector<Range> shards;
};

// The micro-batches of a step, in the order of the global batch. If the worker has at most
// max_examples examples, one micro-batch holds all of its subtrees, and forward and backward run
// over all of its tokens at once. Otherwise each micro-batch is one subtree, halved until it has at
// most max_examples examples or is a single shard. With ShardGradients::kSeparate each micro-batch
// is one shard.
struct MicroBatchPlan {
  std::vector<std::vector<Group>> micro_batches;

  std::vector<Subtree> subtrees() const;
  int gradients() const;  // gradient buffers that the step needs at once
};

// Whether the kernels may sum the gradients of several shards.
enum class ShardGradients { kSummed, kSeparate };

// `own`: the worker's shards out of `shards`; `examples`: in this step's global batch.
MicroBatchPlan plan_micro_batches(Range own, int shards, std::int64_t examples,
                                  std::int64_t max_examples,
                                  ShardGradients gradients = ShardGradients::kSummed);

// With --exact=false: the rank's part of the examples in the smallest power of two of micro-batches
// that keeps each at max_examples or fewer. Each micro-batch is one shard; the subtrees only number
// them.
MicroBatchPlan plan_plain_micro_batches(int rank, int world, std::int64_t examples,
                                        std::int64_t max_examples);

// The first of the two above with the sizes of `settings`.
MicroBatchPlan plan_shards(const Settings& settings, Range own, std::int64_t examples);

// One of the two above, according to `settings`. `split`: the shards of each rank; --exact=false
// takes only their number.
MicroBatchPlan plan_step(const Settings& settings, std::span<const Range> split, int rank,
                         std::int64_t examples);

// The examples of the global batch in the micro-batches of plan_step().
Range examples_of_rank(const Settings& settings, std::span<const Range> split, int rank,
                       std::int64_t examples);

// An upper bound of the examples in a micro-batch of plan_micro_batches().
std::int64_t max_micro_batch_examples(int shards, std::int64_t global_batch,
                                      std::int64_t max_examples);

}  // namespace tilewright::train
