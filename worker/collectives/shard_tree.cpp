#include "worker/collectives/shard_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tilewright::collectives {

Status check_shards(int shards, int max_workers, std::int64_t examples) {
  const auto refuse = [](std::string why) { return Error{ExitCode::kUsage, std::move(why)}; };
  if (shards < 1 || !std::has_single_bit(static_cast<unsigned>(shards))) {
    return refuse(
        fmt::format("found {} virtual shards, expected a power of two (1, 2, 4, ...)", shards));
  }
  if (shards < max_workers) {
    return refuse(
        fmt::format("found {} virtual shards for up to {} workers, expected at least {}: one shard "
                    "per worker",
                    shards, max_workers, std::bit_ceil(static_cast<unsigned>(max_workers))));
  }
  if (shards > examples) {
    return refuse(
        fmt::format("found {} virtual shards for a global batch of {} examples, expected at most "
                    "one shard per example",
                    shards, examples));
  }
  return {};
}

Range shard_examples(int shard, int shards, std::int64_t examples) {
  TW_CHECK(0 <= shard && shard < shards && examples >= 0, "shard {} of {}, {} examples", shard,
           shards, examples);
  // i * V / n >= s if and only if i >= s * n / V, so shard s begins at s * n / V rounded up.
  const auto begin = [=](std::int64_t s) { return (s * examples + shards - 1) / shards; };
  return {begin(shard), begin(shard + 1)};
}

Range shards_of(int rank, int world, int shards) {
  TW_CHECK(0 <= rank && rank < world, "rank {} of {}", rank, world);
  const int share = shards / world;
  const int larger = shards % world;
  const int begin = rank * share + std::min(rank, larger);
  return {begin, begin + share + (rank < larger ? 1 : 0)};
}

std::vector<Range> even_split(int world, int shards) {
  std::vector<Range> split;
  split.reserve(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) split.push_back(shards_of(rank, world, shards));
  return split;
}

bool is_aligned(const Subtree& subtree) {
  return subtree.begin >= 0 && subtree.size >= 1 &&
         std::has_single_bit(static_cast<unsigned>(subtree.size)) &&
         subtree.begin % subtree.size == 0;
}

std::vector<Range> even_split_without(std::span<const int> without, int world, int shards) {
  std::vector<Range> split = even_split(world - static_cast<int>(without.size()), shards);
  for (const int rank : without) {
    const std::int64_t begin = rank == 0 ? 0 : split[static_cast<std::size_t>(rank) - 1].end;
    split.insert(split.begin() + rank, {begin, begin});
  }
  return split;
}

std::vector<Subtree> aligned_subtrees(Range shards) {
  std::vector<Subtree> subtrees;
  auto begin = static_cast<unsigned>(shards.begin);
  const auto end = static_cast<unsigned>(shards.end);
  while (begin < end) {
    const unsigned aligned = begin == 0 ? end : begin & -begin;
    const unsigned size = std::bit_floor(std::min(aligned, end - begin));
    subtrees.push_back({static_cast<int>(begin), static_cast<int>(size)});
    begin += size;
  }
  return subtrees;
}

std::vector<Merge> merges_of(std::span<const Subtree> parts) {
  struct Node {
    Subtree subtree;
    int slot;
  };
  std::vector<Node> stack;
  std::vector<Merge> merges;
  for (int part = 0; part < static_cast<int>(parts.size()); ++part) {
    const Subtree& subtree = parts[static_cast<std::size_t>(part)];
    TW_CHECK(is_aligned(subtree), "part {} over shards {} to {} is not an aligned subtree", part,
             subtree.begin, subtree.end());
    TW_CHECK(stack.empty() || stack.back().subtree.end() == subtree.begin,
             "part {} begins at shard {}, expected {}", part, subtree.begin,
             stack.back().subtree.end());
    stack.push_back({subtree, part});
    while (stack.size() >= 2) {
      const Node right = stack.back();
      Node& left = stack[stack.size() - 2];
      const bool siblings = left.subtree.size == right.subtree.size &&
                            left.subtree.begin % (2 * left.subtree.size) == 0;
      if (!siblings) break;
      merges.push_back({left.slot, right.slot, part});
      left.subtree.size *= 2;
      stack.pop_back();
    }
  }
  return merges;
}

}  // namespace tilewright::collectives
