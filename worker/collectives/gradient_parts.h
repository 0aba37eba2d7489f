// The input and output of one step's all-reduce on one worker: the flat fp32 gradient summed over
// each of the worker's aligned subtrees of shards, and the buffer for the sum over all workers.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

struct GradientPart {
  Subtree subtree;
  float* data = nullptr;  // [count]
};

struct GradientParts {
  std::int64_t count = 0;  // elements of the flat gradient
  // The first elements of all parts that are bf16 numbers. All their sums are rounded to bf16 too,
  // and peers without shared memory get them as bf16. A bucket has only such elements or none.
  std::int64_t bf16_count = 0;
  std::vector<GradientPart> parts;  // left to right; the all-reduce overwrites their data
  // [count]: the result, equal on all ranks. Either one of the parts' buffers (in place, the usual
  // case) or a buffer that overlaps none of them.
  float* sum = nullptr;
};

}  // namespace tilewright::collectives
