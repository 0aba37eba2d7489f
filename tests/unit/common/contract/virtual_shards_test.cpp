#include "common/contract/virtual_shards.h"

#include <gtest/gtest.h>

#include <bit>

namespace tilewright {
namespace {

TEST(VirtualShards, AreConstantUpToEightWorkers) {
  for (std::int64_t workers = 1; workers <= 8; ++workers) {
    EXPECT_EQ(choose_virtual_shards(32, workers), 8) << workers;
  }
  EXPECT_EQ(choose_virtual_shards(32, 9), 16);
}

TEST(VirtualShards, AreAPowerOfTwoWithinTheBatch) {
  for (std::int64_t batch = 1; batch <= 70; ++batch) {
    for (std::int64_t workers = 1; workers <= 70; ++workers) {
      const std::int64_t shards = choose_virtual_shards(batch, workers);
      ASSERT_TRUE(std::has_single_bit(static_cast<std::uint64_t>(shards)));
      ASSERT_LE(shards, batch);
      // Fewer shards than workers only if the next power of two exceeds the batch.
      if (shards < workers) {
        ASSERT_GT(shards * 2, batch);
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
