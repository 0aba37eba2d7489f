// How workers share the CPUs of a machine.
#include "controller/local/cpus.h"

#include <gtest/gtest.h>

namespace tilewright::local {
namespace {

TEST(Cpus, AreSharedOutInNeighbouringParts) {
  const std::vector<int> eight = {0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_EQ(share_of_cpus(eight, 0, 2), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(share_of_cpus(eight, 1, 2), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(share_of_cpus(eight, 0, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(share_of_cpus(eight, 1, 3), (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(share_of_cpus(eight, 2, 3), (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(share_of_cpus(eight, 5, 3), share_of_cpus(eight, 2, 3)) << "scaled up since";
  EXPECT_TRUE(share_of_cpus({4}, 0, 2).empty()) << "fewer than workers: shared, unbound";
  EXPECT_TRUE(share_of_cpus({}, 0, 1).empty());
}

}  // namespace
}  // namespace tilewright::local
