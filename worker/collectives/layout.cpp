#include "worker/collectives/layout.h"

#include <algorithm>

namespace tilewright::collectives {

Layout::Layout(ReduceMode reduce_mode, std::span<const Range> split, int shards)
    : mode(reduce_mode) {
  std::int64_t next = 0;
  std::vector<Subtree> slots_in_order;
  for (const Range& range : split) {
    TW_CHECK(range.begin == next && range.end >= range.begin,
             "found shards {} to {} of a rank, expected a range from {}", range.begin, range.end,
             next);
    next = range.end;
    first_slot.push_back(static_cast<int>(slots_in_order.size()));
    if (mode == ReduceMode::kExact) {
      parts_of.push_back(aligned_subtrees(range));
    } else {
      parts_of.push_back({{static_cast<int>(parts_of.size()), 1}});
    }
    slots_in_order.insert(slots_in_order.end(), parts_of.back().begin(), parts_of.back().end());
  }
  first_slot.push_back(static_cast<int>(slots_in_order.size()));
  TW_CHECK(next == shards, "found {} shards on all ranks, expected {}", next, shards);
  if (mode == ReduceMode::kExact) {
    merges = merges_of(slots_in_order);
    TW_CHECK(merges.size() + 1 == slots_in_order.size(), "{} shards are not a full tree", shards);
  } else {
    for (int rank = 1; rank < world(); ++rank) merges.push_back({0, rank, rank});
  }
}

Range slice_of(Range chunk, int rank, int world) {
  const std::int64_t share = (chunk.size() + world - 1) / world;
  const std::int64_t width = (share + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  return {std::min(chunk.begin + rank * width, chunk.end),
          std::min(chunk.begin + (rank + 1) * width, chunk.end)};
}

int chunks_in(Range bucket, std::int64_t chunk_elements) {
  return static_cast<int>(
      std::max<std::int64_t>(1, (bucket.size() + chunk_elements - 1) / chunk_elements));
}

}  // namespace tilewright::collectives
