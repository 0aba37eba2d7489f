// Who sums what: the slots of all ranks in the order of the tree, and how buckets of the flat
// gradient fall into chunks and chunks into one slice a rank. Pure; the same on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/collectives/shard_tree.h"

namespace tilewright::collectives {

enum class ReduceMode {
  kExact,  // in the order of the shard tree: bit-identical for every number of workers
  kPlain,  // in the order of the ranks, one part a rank: for measuring what exactness costs
};

struct Layout {
  // `split`: the shards of each rank, adjacent, together all V of them.
  Layout(ReduceMode mode, std::span<const Range> split, int shards);

  int world() const { return static_cast<int>(parts_of.size()); }
  int slots() const { return first_slot.back(); }
  int slots_of(int rank) const {
    return static_cast<int>(parts_of[static_cast<std::size_t>(rank)].size());
  }

  ReduceMode mode;
  std::vector<std::vector<Subtree>> parts_of;  // by rank, left to right
  std::vector<int> first_slot;                 // of each rank; one more at the end
  std::vector<Merge> merges;                   // over all slots; the root ends in slot 0
};

// Slices begin at multiples of this within a chunk: 64 bytes, a cache line.
inline constexpr std::int64_t kSliceAlignment = 16;

// The elements of a chunk that `rank` sums; empty for the last ranks of a short chunk.
Range slice_of(Range chunk, int rank, int world);

// The chunks of one bucket: pieces of at most chunk_elements, at least one (perhaps empty).
int chunks_in(Range bucket, std::int64_t chunk_elements);

}  // namespace tilewright::collectives
