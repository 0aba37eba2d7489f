// The fixed binary tree in which gradients are summed, independent of the number of workers.
//
// A global batch of n examples is split into V virtual shards, V a power of two. The sum over the
// shards is a full binary tree whose shape depends only on V: leaves are shards, a node is
// left + right. A worker owns a contiguous range of shards and contributes the sums of the largest
// aligned subtrees in it, at most 2 log2 V. Example with V = 8 and three workers:
//
//                       root
//            ┌───────────┴───────────┐
//          [0,4)                   [4,8)
//       ┌────┴────┐             ┌────┴────┐
//     [0,2)     [2,4)         [4,6)     [6,8)
//    ┌──┴──┐   ┌──┴──┐       ┌──┴──┐   ┌──┴──┐
//    0     1   2     3       4     5   6     7
//    └── rank 0 ──┘  └── rank 1 ───┘   └rank 2─┘
// parts: [0,2), 2     3, [4,6)           [6,8)
//
// An empty shard is a part of zeros, not skipped: -0 + 0 is +0, so skipping it could change a bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "worker/runtime/range.h"

namespace tilewright::collectives {

using runtime::Range;  // of examples, shards or elements

// The node over shards [begin, begin + size): size is a power of two and divides begin.
struct Subtree {
  int begin = 0;
  int size = 1;
  int end() const { return begin + size; }
  bool operator==(const Subtree&) const = default;
};

// An Error with kUsage if the number of shards is not a power of two, is less than max_workers or
// more than the examples of a batch.
Status check_shards(int shards, int max_workers, std::int64_t examples);

// The examples of a shard: example i of n belongs to shard i * V / n, rounded down. A shard may be
// empty if n < V. n * V must be less than 2^63.
Range shard_examples(int shard, int shards, std::int64_t examples);

// The shards of a rank: balanced, larger shares first. One subtree per rank if world is a power of
// two.
Range shards_of(int rank, int world, int shards);

// shards_of for every rank.
std::vector<Range> even_split(int world, int shards);

// The even split among the other ranks; those of `without`, ascending, have no shards.
std::vector<Range> even_split_without(std::span<const int> without, int world, int shards);

// The smallest list of aligned subtrees that covers the shards [begin, end), from left to right.
std::vector<Subtree> aligned_subtrees(Range shards);

bool is_aligned(const Subtree& subtree);

// One addition: slot[left] += slot[right], possible as soon as part `after` is available. Slot i
// initially holds part i.
struct Merge {
  int left = 0;
  int right = 0;
  int after = 0;
  bool operator==(const Merge&) const = default;
};

// The additions that combine adjacent parts, given from left to right, into the fewest aligned
// subtrees. As in a binary counter, two siblings merge as soon as both are available. If the parts
// cover all V shards, slot 0 ends up with the root.
std::vector<Merge> merges_of(std::span<const Subtree> parts);

}  // namespace tilewright::collectives
