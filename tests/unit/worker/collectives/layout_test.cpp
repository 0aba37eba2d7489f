#include "worker/collectives/layout.h"

#include <gtest/gtest.h>

namespace tilewright::collectives {
namespace {

TEST(Slices, CoverAChunkExactlyOnceAndBeginAtCacheLines) {
  for (const std::int64_t size : {0, 1, 15, 16, 17, 1000, 4096}) {
    for (int world = 1; world <= 5; ++world) {
      const Range chunk{37, 37 + size};
      std::int64_t next = chunk.begin;
      for (int rank = 0; rank < world; ++rank) {
        const Range slice = slice_of(chunk, rank, world);
        EXPECT_EQ(slice.begin, next);
        EXPECT_TRUE(slice.size() == 0 || (slice.begin - chunk.begin) % kSliceAlignment == 0);
        EXPECT_LE(slice.size(), slice_of(chunk, 0, world).size());
        next = slice.end;
      }
      EXPECT_EQ(next, chunk.end);
    }
  }
}

TEST(Chunks, AnEmptyBucketHasOne) {
  EXPECT_EQ(chunks_in({5, 5}, 10), 1);
  EXPECT_EQ(chunks_in({5, 15}, 10), 1);
  EXPECT_EQ(chunks_in({5, 16}, 10), 2);
}

TEST(Layout, NumbersTheSlotsOfAllRanksInTheOrderOfTheTree) {
  const auto split = even_split(3, 8);  // 3, 3 and 2 shards
  const Layout layout(ReduceMode::kExact, split, 8);
  EXPECT_EQ(layout.first_slot, (std::vector<int>{0, 2, 4, 5}));
  EXPECT_EQ(layout.parts_of[0], (std::vector<Subtree>{{0, 2}, {2, 1}}));
  EXPECT_EQ(layout.parts_of[1], (std::vector<Subtree>{{3, 1}, {4, 2}}));
  EXPECT_EQ(layout.parts_of[2], (std::vector<Subtree>{{6, 2}}));
  EXPECT_EQ(layout.merges, (std::vector<Merge>{{1, 2, 2}, {0, 1, 2}, {3, 4, 4}, {0, 3, 4}}));
}

TEST(Layout, SumsInTheOrderOfTheRanksInPlainMode) {
  const auto split = even_split(3, 8);
  const Layout layout(ReduceMode::kPlain, split, 8);
  EXPECT_EQ(layout.slots(), 3);
  EXPECT_EQ(layout.merges, (std::vector<Merge>{{0, 1, 1}, {0, 2, 2}}));
}

TEST(LayoutDeathTest, AbortsOnASplitThatDoesNotCoverTheShards) {
  const std::vector<Range> gap{{0, 1}, {2, 4}}, rest{{0, 1}, {1, 3}};
  EXPECT_DEATH(Layout(ReduceMode::kExact, gap, 4), "expected a range from 1");
  EXPECT_DEATH(Layout(ReduceMode::kExact, rest, 4), "found 3 shards on all ranks, expected 4");
}

}  // namespace
}  // namespace tilewright::collectives
