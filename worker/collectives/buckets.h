// The buckets of a gradient: the parts whose exchange starts as soon as backward has completed
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/runtime/range.h"

namespace tilewright::collectives {

// 4 MiB of gradient: large enough for the network's bandwidth, small enough to overlap with
// backward.
inline constexpr std::int64_t kBucketElements = std::int64_t{1} << 20;

// Replaces `buckets` by those of the elements [0, count), in ascending order. None crosses
// `boundary`, from 0 to count.
void split_into_buckets(std::int64_t count, std::int64_t boundary,
                        std::vector<runtime::Range>& buckets);

}  // namespace tilewright::collectives
