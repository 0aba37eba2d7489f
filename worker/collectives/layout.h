// The plan of an all-reduce: the parts of all ranks in the order of the tree, and how buckets of
// the flat gradient are split into chunks and chunks into one slice per rank. Pure functions; every
// rank computes the same plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

enum class ReduceMode {
  kExact,  // in the order of the shard tree: bit-identical for any number of workers
  // One part per rank, in the order of the ranks of each host, then of the hosts: without the cost
  // of kExact.
  kPlain,
};

struct Layout {
  // `split`: the shards of each rank; adjacent ranges.
  Layout(ReduceMode mode, std::span<const Range> split);

  int world() const { return static_cast<int>(parts_of.size()); }
  int slots() const { return first_slot.back(); }
  int slots_of(int rank) const {
    return static_cast<int>(parts_of[static_cast<std::size_t>(rank)].size());
  }

  ReduceMode mode;
  std::vector<std::vector<Subtree>> parts_of;  // by rank, left to right
  std::vector<int> first_slot;                 // by rank, then the number of slots
  std::vector<Merge> merges;                   // over all slots
  // The slots that hold the sums at the end: {0} if the ranges cover all shards, and in plain mode.
  std::vector<int> sums;
};

// The ranks as hosts of `ranks_per_host` adjacent ranks. Ranks of a host first sum over their host;
// then those of all hosts with the same place on their host sum over the hosts. So a host sends as
// many bytes to others as one rank would. With one rank per host there is only the second stage.
struct HostGrid {
  HostGrid(int world, int ranks_per_host);
  int host_of(int rank) const { return rank / ranks_per_host; }
  int place_of(int rank) const { return rank % ranks_per_host; }
  Range ranks_of(int host) const {
    return {std::int64_t{host} * ranks_per_host, (host + std::int64_t{1}) * ranks_per_host};
  }
  // The shards of each host.
  std::vector<Range> split_among_hosts(std::span<const Range> split) const;

  int ranks_per_host = 1;
  int hosts = 1;
};

// Slices begin at multiples of this many elements (64 bytes, a cache line) in their chunk.
inline constexpr std::int64_t kSliceAlignment = 16;

// The elements of a chunk that `rank` of `world` sums. In a short chunk the slices of the last
// ranks are empty.
Range slice_of(Range chunk, int rank, int world);

// The number of chunks of at most chunk_elements in one bucket; 1 for an empty bucket.
int chunks_in(Range bucket, std::int64_t chunk_elements);

}  // namespace tilewright::collectives
