// The CPUs of each local worker.
#include "controller/local/cpus.h"

#include <gtest/gtest.h>

namespace tilewright::local {
namespace {

TEST(Cpus, AreDividedIntoContiguousSlices) {
  const std::vector<int> eight = {0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_EQ(cpu_slice(eight, 0, 2), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(cpu_slice(eight, 1, 2), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(cpu_slice(eight, 0, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(cpu_slice(eight, 1, 3), (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(cpu_slice(eight, 2, 3), (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(cpu_slice(eight, 5, 3), cpu_slice(eight, 2, 3)) << "the job was scaled up";
  EXPECT_TRUE(cpu_slice({4}, 0, 2).empty()) << "fewer CPUs than workers: no binding";
  EXPECT_TRUE(cpu_slice({}, 0, 1).empty());
}

}  // namespace
}  // namespace tilewright::local
