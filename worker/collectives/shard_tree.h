// The fixed binary tree over virtual shards by which every gradient is summed, whoever computes it.
//
// A global batch of n examples is cut into V virtual shards, V a power of two. The sum over the
// shards is a full binary tree whose shape depends on V alone: leaves are shards, a node is
// left + right. A worker owns a contiguous range of shards and hands on the sums of the largest
// aligned subtrees inside it, so nothing about the result depends on the number of workers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/result.h"

namespace tilewright::collectives {

// [begin, end) of examples, shards or elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The node over shards [begin, begin + size): size is a power of two and divides begin.
struct Subtree {
  int begin = 0;
  int size = 1;
  int end() const { return begin + size; }
  bool operator==(const Subtree&) const = default;
};

// Errors carry kUsage: V is no power of two, is below max_workers or above the examples of a batch.
Status check_shards(int shards, int max_workers, std::int64_t examples);

// The examples of a shard: example i of n belongs to shard floor(i * V / n). Empty when n < V
// leaves nothing for it. n * V stays below 2^63.
Range shard_examples(int shard, int shards, std::int64_t examples);

// The shards of a rank: balanced, the larger shares first, whole subtrees where world divides V.
Range shards_of(int rank, int world, int shards);

// shards_of for every rank.
std::vector<Range> even_split(int world, int shards);

// The fewest aligned subtrees that make up the shards [begin, end), from left to right.
std::vector<Subtree> aligned_subtrees(Range shards);

bool is_aligned(const Subtree& subtree);

// One addition: slot `left` += slot `right`, due as soon as part `after` is there. Slots are
// numbered as the parts they begin with.
struct Merge {
  int left = 0;
  int right = 0;
  int after = 0;
  bool operator==(const Merge&) const = default;
};

// The additions that turn parts, adjacent from left to right, into the fewest aligned subtrees, as
// a binary counter does: two siblings merge as soon as both are there. Parts that cover all V
// shards end in slot 0 as the root.
std::vector<Merge> merges_of(std::span<const Subtree> parts);

}  // namespace tilewright::collectives
