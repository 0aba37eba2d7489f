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
  const Layout layout(ReduceMode::kExact, split);
  EXPECT_EQ(layout.first_slot, (std::vector<int>{0, 2, 4, 5}));
  EXPECT_EQ(layout.parts_of[0], (std::vector<Subtree>{{0, 2}, {2, 1}}));
  EXPECT_EQ(layout.parts_of[1], (std::vector<Subtree>{{3, 1}, {4, 2}}));
  EXPECT_EQ(layout.parts_of[2], (std::vector<Subtree>{{6, 2}}));
  EXPECT_EQ(layout.merges, (std::vector<Merge>{{1, 2, 2}, {0, 1, 2}, {3, 4, 4}, {0, 3, 4}}));
}

TEST(Layout, SumsInTheOrderOfTheRanksInPlainMode) {
  const auto split = even_split(3, 8);
  const Layout layout(ReduceMode::kPlain, split);
  EXPECT_EQ(layout.slots(), 3);
  EXPECT_EQ(layout.merges, (std::vector<Merge>{{0, 1, 1}, {0, 2, 2}}));
}

TEST(Layout, OfAHostKeepsOneSumForEachOfItsAlignedSubtrees) {
  const std::vector<Range> split{{2, 4}, {4, 5}, {5, 7}};
  const Layout layout(ReduceMode::kExact, split);  // parts [2,4) | 4 | 5, 6
  EXPECT_EQ(layout.merges, (std::vector<Merge>{{1, 2, 2}}));
  EXPECT_EQ(layout.sums, (std::vector<int>{0, 1, 3}));  // [2,4), [4,6), 6
  const std::vector<Range> whole{{0, 3}, {3, 8}};
  EXPECT_EQ(Layout(ReduceMode::kExact, whole).sums, std::vector<int>{0});
  EXPECT_EQ(Layout(ReduceMode::kPlain, split).sums, std::vector<int>{0});
}

TEST(HostGrid, HasTheShardsOfTheRanksOfEachHost) {
  const HostGrid grid(4, 2);
  EXPECT_EQ(grid.hosts, 2);
  EXPECT_EQ(grid.host_of(2), 1);
  EXPECT_EQ(grid.place_of(3), 1);
  const std::vector<Range> split{{0, 3}, {3, 3}, {3, 7}, {7, 8}};
  EXPECT_EQ(grid.split_among_hosts(split), (std::vector<Range>{{0, 3}, {3, 8}}));
}

TEST(LayoutDeathTest, AbortsOnASplitWithAGap) {
  const std::vector<Range> gap{{0, 1}, {2, 4}};
  EXPECT_DEATH(Layout(ReduceMode::kExact, gap), "expected a range from 1");
  EXPECT_DEATH(HostGrid(5, 2), "5 ranks, 2 per host");
}

}  // namespace
}  // namespace tilewright::collectives
