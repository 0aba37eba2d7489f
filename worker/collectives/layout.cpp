#include "worker/collectives/layout.h"

#include <algorithm>

namespace tilewright::collectives {

Layout::Layout(ReduceMode reduce_mode, std::span<const Range> split) : mode(reduce_mode) {
  TW_CHECK(!split.empty(), "no ranks");
  std::int64_t next = split.front().begin;
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
  if (mode == ReduceMode::kExact) {
    merges = merges_of(slots_in_order);
  } else {
    for (int rank = 1; rank < world(); ++rank) merges.push_back({0, rank, rank});
  }
  for (int slot = 0; slot < slots(); ++slot) {
    if (std::ranges::find(merges, slot, &Merge::right) == merges.end()) sums.push_back(slot);
  }
}

HostGrid::HostGrid(int world, int ranks_of_each_host)
    : ranks_per_host(ranks_of_each_host), hosts(world / ranks_of_each_host) {
  TW_CHECK(ranks_per_host >= 1 && world % ranks_per_host == 0, "{} ranks, {} per host", world,
           ranks_per_host);
}

std::vector<Range> HostGrid::split_among_hosts(std::span<const Range> split) const {
  std::vector<Range> shards;
  for (int host = 0; host < hosts; ++host) {
    const Range ranks = ranks_of(host);
    shards.push_back({split[static_cast<std::size_t>(ranks.begin)].begin,
                      split[static_cast<std::size_t>(ranks.end) - 1].end});
  }
  return shards;
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
