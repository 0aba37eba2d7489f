// The additions of the all-reduce: fp32 sums in the order of a list of merges.
#pragma once

#include <cstdint>
#include <span>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

// out[i] = left[i] + right[i]. out may equal left or right but must not overlap them partially.
void add(float* out, const float* left, const float* right, std::int64_t count);

// Performs merges over slots of `count` elements, overwriting them, and writes the result to out.
// The last merge must have slot 0 on the left. out may be one of the slots.
void run_merges(std::span<const Merge> merges, std::span<float* const> slots, float* out,
                std::int64_t count);

}  // namespace tilewright::collectives
