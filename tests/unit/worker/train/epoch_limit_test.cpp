#include "worker/train/epoch_limit.h"

#include <gtest/gtest.h>

namespace tilewright::train {
namespace {

constexpr MonotonicTime kStart{std::chrono::hours(5)};

TEST(EpochLimit, IsReachedAfterManyEpochsOverALongTime) {
  EpochLimit limit;
  for (int epoch = 0; epoch < EpochLimit::kMaxEpochs; ++epoch) {
    EXPECT_FALSE(limit.begin_epoch(7, kStart + std::chrono::minutes(epoch))) << epoch;
  }
  EXPECT_EQ(limit.begin_epoch(7, kStart + std::chrono::minutes(30)), std::chrono::minutes(30));
  EXPECT_EQ(limit.epochs(), EpochLimit::kMaxEpochs + 1);
}

TEST(EpochLimit, IsNotReachedByManyLossesWithinAShortTime) {
  EpochLimit limit;
  for (int epoch = 0; epoch < 500; ++epoch) {
    EXPECT_FALSE(limit.begin_epoch(0, kStart + std::chrono::seconds(epoch)));
  }
  EXPECT_TRUE(limit.begin_epoch(0, kStart + EpochLimit::kMaxTime));
}

TEST(EpochLimit, IsNotReachedByFewEpochsOverALongTime) {
  EpochLimit limit;
  for (int epoch = 0; epoch < EpochLimit::kMaxEpochs; ++epoch) {
    EXPECT_FALSE(limit.begin_epoch(3, kStart + std::chrono::hours(epoch)));
  }
}

// Also one that is lost again, after a checkpoint.
TEST(EpochLimit, BeginsAnewWithEachStep) {
  EpochLimit limit;
  for (int epoch = 0; epoch < 100; ++epoch) {
    EXPECT_FALSE(limit.begin_epoch(epoch / 10 % 3, kStart + std::chrono::minutes(epoch)));
  }
  EXPECT_EQ(limit.epochs(), 10);
}

}  // namespace
}  // namespace tilewright::train
