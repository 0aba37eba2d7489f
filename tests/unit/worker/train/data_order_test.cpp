#include "worker/train/data_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tilewright::train {
namespace {

std::vector<std::int32_t> batch(DataOrder& order, std::int64_t step) {
  const auto view = order.batch(step);
  return {view.begin(), view.end()};
}

TEST(DataOrder, VisitsEveryExampleOnceAnEpochAndEndsWithAShortBatch) {
  DataOrder order(103, 10, 7);
  ASSERT_EQ(order.steps_per_epoch(), 11);
  for (const int epoch : {0, 1}) {
    std::set<std::int32_t> seen;
    for (int step = 0; step < 11; ++step) {
      const auto examples = batch(order, epoch * 11 + step);
      EXPECT_EQ(examples.size(), step == 10 ? 3u : 10u);
      seen.insert(examples.begin(), examples.end());
    }
    EXPECT_EQ(seen.size(), 103u);
    EXPECT_EQ(*seen.rbegin(), 102);
  }
}

TEST(DataOrder, ComputesAnyStepWithoutThePreviousOnes) {
  DataOrder sequential(50, 8, 1);
  DataOrder random_access(50, 8, 1);
  const auto late = batch(random_access, 20);
  const auto early = batch(random_access, 3);
  std::vector<std::int32_t> late_sequential;
  for (int step = 0; step <= 20; ++step) {
    const auto now = batch(sequential, step);
    if (step == 3) {
      EXPECT_EQ(now, early);
    }
    if (step == 20) late_sequential = now;
  }
  EXPECT_EQ(late, late_sequential);
}

TEST(DataOrder, DiffersFromSeedToSeedAndEpochToEpoch) {
  DataOrder a(1000, 1000, 1);
  DataOrder b(1000, 1000, 2);
  EXPECT_NE(batch(a, 0), batch(b, 0));
  EXPECT_NE(batch(a, 0), batch(a, 1));
}

}  // namespace
}  // namespace tilewright::train
