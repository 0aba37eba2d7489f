// What one worker brings to the exchange of a step: the flat fp32 gradient summed over each of its
// aligned subtrees of shards, and where the sum over all workers goes.
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
  std::int64_t count = 0;           // elements of the flat gradient
  std::vector<GradientPart> parts;  // left to right; used up by the exchange
  // [count]: the result, equal on all ranks. One of the parts' buffers (then the exchange works in
  // place, the usual case) or one that overlaps none of them.
  float* sum = nullptr;
};

}  // namespace tilewright::collectives
