#include "worker/collectives/buckets.h"

#include <gtest/gtest.h>

namespace tilewright::collectives {
namespace {

using runtime::Range;

TEST(Buckets, CoverTheGradientInOrderAndTheLastMayBeShorter) {
  std::vector<Range> buckets = {{7, 8}};
  split_into_buckets(2 * kBucketElements + 3, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, kBucketElements},
                                         {kBucketElements, 2 * kBucketElements},
                                         {2 * kBucketElements, 2 * kBucketElements + 3}}));
  split_into_buckets(kBucketElements, buckets);
  EXPECT_EQ(buckets, (std::vector<Range>{{0, kBucketElements}}));
}

}  // namespace
}  // namespace tilewright::collectives
