// Tests of PageSize: pages shrink until they fit and grow back.
#include "controller/client/page_size.h"

#include <gtest/gtest.h>

namespace tilewright::kube {
namespace {

TEST(PageSize, HalvesDownToOneObject) {
  PageSize size(250);
  for (const int limit : {250, 125, 62, 31, 15, 7, 3, 1}) {
    EXPECT_EQ(size.limit(), limit);
    EXPECT_EQ(size.shrink(), limit > 1);
  }
  EXPECT_EQ(size.limit(), 1);
}

TEST(PageSize, GrowsBackToTheMaximumWhilePagesAreSmall) {
  PageSize size(10);
  size.shrink();
  size.shrink();
  EXPECT_EQ(size.limit(), 2);
  size.arrived(kMaxPageBytes / 2);
  EXPECT_EQ(size.limit(), 2) << "twice as many objects may be too large";
  for (const int limit : {4, 8, 10, 10}) {
    size.arrived(1000);
    EXPECT_EQ(size.limit(), limit);
  }
}

TEST(PageSize, IsUnlimitedWithoutPaging) {
  PageSize size(0);
  EXPECT_FALSE(size.shrink());
  size.arrived(1000);
  EXPECT_EQ(size.limit(), 0);
}

}  // namespace
}  // namespace tilewright::kube
