#include "worker/train/gradient_tail.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewright::train {
namespace {

TEST(GradientTail, HasOneElementForEachNumberInAFixedOrder) {
  const GradientTail tail{.begin = 100, .world = 2};
  const std::vector<std::int64_t> order = {tail.stop_requests(),    tail.leaving(),
                                           tail.senders_done(),     tail.compute_seconds(0),
                                           tail.compute_seconds(1), tail.end()};
  EXPECT_EQ(order, (std::vector<std::int64_t>{100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(tail.end() - tail.begin, GradientTail::size(2));
}

}  // namespace
}  // namespace tilewright::train
