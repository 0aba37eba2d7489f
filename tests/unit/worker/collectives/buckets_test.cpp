#include "worker/collectives/buckets.h"

#include <gtest/gtest.h>

namespace tilewright::collectives {
namespace {

using runtime::Range;

TEST(Buckets, CoverTheGradientInOrderAndTheLastMayBeShorter) {
  std::vector<Range> buckets = {{7, 8}};
  split_into_buckets(2 * kBucketElements + 3, 0, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, kBucketElements},
                                         {kBucketElements, 2 * kBucketElements},
                                         {2 * kBucketElements, 2 * kBucketElements + 3}}));
  split_into_buckets(kBucketElements, 0, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, kBucketElements}}));
}

TEST(Buckets, NoneCrossesTheBoundary) {
  std::vector<Range> buckets;
  split_into_buckets(kBucketElements + 7, kBucketElements + 5, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, kBucketElements},
                                         {kBucketElements, kBucketElements + 5},
                                         {kBucketElements + 5, kBucketElements + 7}}));
  split_into_buckets(9, 9, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, 9}}));
}

}  // namespace
}  // namespace tilewright::collectives
