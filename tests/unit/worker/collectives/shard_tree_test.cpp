#include "worker/collectives/shard_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

namespace tilewright::collectives {
namespace {

TEST(Shards, ContainExampleIInShardIVOverNRoundedDown) {
  for (const int shards : {1, 2, 4, 8, 16, 64}) {
    for (std::int64_t n = 0; n <= 200; ++n) {
      std::int64_t next = 0;
      for (int shard = 0; shard < shards; ++shard) {
        const Range examples = shard_examples(shard, shards, n);
        EXPECT_EQ(examples.begin, next);
        for (std::int64_t i = examples.begin; i < examples.end; ++i) {
          EXPECT_EQ(i * shards / n, shard);
        }
        next = examples.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(Shards, DifferByAtMostOneExample) {
  for (std::int64_t n = 1; n <= 300; ++n) {
    for (int shard = 0; shard < 16; ++shard) {
      const std::int64_t size = shard_examples(shard, 16, n).size();
      EXPECT_GE(size, n / 16);
      EXPECT_LE(size, (n + 15) / 16);
    }
  }
}

TEST(Shards, AreSplitAmongRanksInOrderWithADifferenceOfAtMostOne) {
  for (const int shards : {1, 2, 4, 8, 16, 32}) {
    for (int world = 1; world <= shards; ++world) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Range mine = shards_of(rank, world, shards);
        EXPECT_EQ(mine.begin, next);
        EXPECT_GE(mine.size(), shards / world);
        EXPECT_LE(mine.size(), (shards + world - 1) / world);
        next = mine.end;
      }
      EXPECT_EQ(next, shards);
    }
  }
}

TEST(Shards, AreOneSubtreePerRankIfTheWorldIsAPowerOfTwo) {
  for (const int shards : {2, 4, 8, 16, 32}) {
    for (int world = 1; world <= shards; world *= 2) {
      for (int rank = 0; rank < world; ++rank) {
        EXPECT_EQ(aligned_subtrees(shards_of(rank, world, shards)).size(), 1u);
      }
    }
  }
}

TEST(Shards, MustBeAPowerOfTwoBetweenTheWorkersAndTheExamples) {
  EXPECT_TRUE(check_shards(8, 8, 8).ok());
  EXPECT_TRUE(check_shards(1, 1, 1).ok());
  for (const int shards : {0, -4, 3, 12}) {
    const Status status = check_shards(shards, 1, 100);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ExitCode::kUsage);
    EXPECT_NE(status.error().message.find("power of two"), std::string::npos);
  }
  EXPECT_EQ(
      check_shards(4, 5, 100).error().message,
      "found 4 virtual shards for up to 5 workers, expected at least 8: one shard per worker");
  EXPECT_EQ(check_shards(8, 2, 7).error().message,
            "found 8 virtual shards for a global batch of 7 examples, expected at most one shard "
            "per example");
}

TEST(AlignedSubtrees, CoverTheRangeWithTheFewestSubtrees) {
  EXPECT_EQ(aligned_subtrees({0, 8}), (std::vector<Subtree>{{0, 8}}));
  EXPECT_EQ(aligned_subtrees({0, 7}), (std::vector<Subtree>{{0, 4}, {4, 2}, {6, 1}}));
  EXPECT_EQ(aligned_subtrees({1, 7}), (std::vector<Subtree>{{1, 1}, {2, 2}, {4, 2}, {6, 1}}));
  EXPECT_EQ(aligned_subtrees({5, 5}), (std::vector<Subtree>{}));
  for (int begin = 0; begin < 32; ++begin) {
    for (int end = begin; end <= 32; ++end) {
      int next = begin;
      const auto blocks = aligned_subtrees({begin, end});
      for (const Subtree& block : blocks) {
        EXPECT_TRUE(is_aligned(block));
        EXPECT_EQ(block.begin, next);
        next = block.end();
      }
      EXPECT_EQ(next, end);
      EXPECT_TRUE(merges_of(blocks).empty());  // no two of them form a larger subtree
    }
  }
}

TEST(Merges, FollowTheFullTreeInOperandOrder) {
  const std::vector<Subtree> leaves{{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  EXPECT_EQ(merges_of(leaves), (std::vector<Merge>{{0, 1, 1}, {2, 3, 3}, {0, 2, 3}}));
  const std::vector<Subtree> mixed{{0, 2}, {2, 1}, {3, 1}, {4, 4}};
  EXPECT_EQ(merges_of(mixed), (std::vector<Merge>{{1, 2, 2}, {0, 1, 2}, {0, 3, 3}}));
}

// The expression over the leaves as text, for comparing shapes.
std::string tree_text(int begin, int size) {
  if (size == 1) return std::to_string(begin);
  return fmt::format("({}+{})", tree_text(begin, size / 2), tree_text(begin + size / 2, size / 2));
}

TEST(Merges, GiveTheSameShapeForEverySplitOfTheShards) {
  constexpr int kShards = 16;
  for (unsigned cuts = 0; cuts < 1u << (kShards - 1); ++cuts) {  // every set of cuts
    std::vector<Subtree> parts;
    int begin = 0;
    for (int end = 1; end <= kShards; ++end) {
      if (end < kShards && !(cuts >> (end - 1) & 1)) continue;
      const auto blocks = aligned_subtrees({begin, end});
      parts.insert(parts.end(), blocks.begin(), blocks.end());
      begin = end;
    }
    std::vector<std::string> slots;
    slots.reserve(parts.size());
    for (const Subtree& part : parts) slots.push_back(tree_text(part.begin, part.size));
    for (const Merge& merge : merges_of(parts)) {
      auto& left = slots[static_cast<std::size_t>(merge.left)];
      left = fmt::format("({}+{})", left, slots[static_cast<std::size_t>(merge.right)]);
    }
    ASSERT_EQ(slots[0], tree_text(0, kShards)) << "cuts " << cuts;
  }
}

TEST(MergesDeathTest, AbortsOnPartsThatOverlapOrLeaveGaps) {
  const std::vector<Subtree> gap{{0, 1}, {2, 1}}, crooked{{1, 2}};
  EXPECT_DEATH(merges_of(gap), "begins at shard 2, expected 1");
  EXPECT_DEATH(merges_of(crooked), "not an aligned subtree");
}

TEST(EvenSplit, LeavesOutRanks) {
  EXPECT_EQ(even_split_without({}, 3, 8), even_split(3, 8));
  EXPECT_EQ(even_split_without(std::vector{0}, 3, 8), (std::vector<Range>{{0, 0}, {0, 4}, {4, 8}}));
  EXPECT_EQ(even_split_without(std::vector{1}, 3, 8), (std::vector<Range>{{0, 4}, {4, 4}, {4, 8}}));
  EXPECT_EQ(even_split_without(std::vector{0, 1, 3}, 4, 8),
            (std::vector<Range>{{0, 0}, {0, 0}, {0, 8}, {8, 8}}));
  EXPECT_EQ(even_split_without(std::vector{2, 3}, 4, 8),
            (std::vector<Range>{{0, 4}, {4, 8}, {8, 8}, {8, 8}}));
}

}  // namespace
}  // namespace tilewright::collectives
