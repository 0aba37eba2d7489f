// The additions of the exchange: plain fp32 sums whose order is given by a list of merges.
#pragma once

#include <cstdint>
#include <span>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

// out[i] = left[i] + right[i]. out may be left or right, but not overlap them otherwise.
void add(float* out, const float* left, const float* right, std::int64_t count);

// Carries out merges over slots of `count` elements (used up on the way); the value of slot 0,
// which must be the last to merge, goes to out. out may be one of the slots.
void run_merges(std::span<const Merge> merges, std::span<float* const> slots, float* out,
                std::int64_t count);

}  // namespace tilewright::collectives
