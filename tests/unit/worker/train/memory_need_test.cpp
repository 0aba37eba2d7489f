#include "worker/train/memory_need.h"

#include <gtest/gtest.h>

#include "common/base/result.h"

namespace tilewright::train {
namespace {

constexpr std::uint64_t kMib = 1 << 20;

MemoryNeed need() {
  return {.weights = 300 * kMib,
          .packed = 50 * kMib,
          .activations = 700 * kMib,
          .gradients = 100 * kMib,
          .tokens = 4096,
          .batch_flag = "per_device_train_batch_size"};
}

std::string refusal(const MemoryNeed& need, std::uint64_t available) {
  try {
    check_memory(need, available);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kMemory);
    return failure.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

// 1150 MiB named, and 128 for the rest.
TEST(MemoryNeed, IsAllowedDownToTheLastByte) {
  EXPECT_EQ(need().total(), 1278 * kMib);
  check_memory(need(), 1278 * kMib);
  EXPECT_THROW(check_memory(need(), 1278 * kMib - 1), Failure);
}

TEST(MemoryNeed, IsRefusedWithTheFlagThatLowersIt) {
  EXPECT_EQ(
      refusal(need(), 800 * kMib),
      "not enough memory: this training needs about 1278 MiB (weights and moments 300, packed "
      "weights 50, activations of 4096 tokens 700, gradients 100), found 800 MiB available, "
      "expected more or a smaller --per_device_train_batch_size");
}

TEST(MemoryNeed, IsRefusedWithAnotherModelWhereNoBatchWouldFit) {
  EXPECT_TRUE(refusal(need(), 500 * kMib)
                  .ends_with("found 500 MiB available, expected more or a "
                             "smaller model"));
}

}  // namespace
}  // namespace tilewright::train
