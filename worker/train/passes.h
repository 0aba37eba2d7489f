// How a worker cuts its shards of a step into passes through the model.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::train {

using collectives::Range;
using collectives::Subtree;

// A subtree of shards and the examples of each of its shards, places in the global batch.
struct Group {
  Subtree subtree;
  std::vector<Range> shards;
};

// The passes of a step, left to right. Either one pass holds all of the worker's subtrees (forward
// and backward then run over all its tokens at once), or, where these are more than max_examples,
// each pass is one subtree, halved until it is small enough or a single shard.
struct PassPlan {
  std::vector<std::vector<Group>> passes;

  std::vector<Subtree> subtrees() const;
  Range examples() const;  // of all passes
  int gradients() const;   // so many a step holds at once, at most
};

// `own`: the worker's shards out of `shards`; `examples`: of this step's global batch.
PassPlan plan_passes(Range own, int shards, std::int64_t examples, std::int64_t max_examples);

// Without exactness: rank's share of the examples in as few passes as fit, a power of two, each one
// shard; the subtrees then only number the passes.
PassPlan plan_plain_passes(int rank, int world, std::int64_t examples, std::int64_t max_examples);

// An upper bound of the examples in any pass of plan_passes.
std::int64_t most_examples_of_a_pass(int shards, std::int64_t global_batch,
                                     std::int64_t max_examples);

}  // namespace tilewright::train
