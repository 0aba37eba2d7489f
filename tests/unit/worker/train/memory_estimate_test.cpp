#include "worker/train/memory_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/result.h"
#include "worker/runtime/memory.h"

namespace tilewright::train {
namespace {

constexpr std::uint64_t kMib = 1 << 20;

MemoryEstimate need() {
  return {.weights = 300 * kMib,
          .packed = 50 * kMib,
          .activations = 700 * kMib,
          .gradients = 100 * kMib,
          .tokens = 4096,
          .batch_flag = "per_device_train_batch_size"};
}

std::string refusal(const MemoryEstimate& need, std::uint64_t available) {
  try {
    check_memory(need, available);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kMemory);
    return failure.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

// The named parts are 1150 MiB; 128 MiB are added for everything else.
TEST(MemoryEstimate, IsAcceptedUpToExactlyTheAvailableMemory) {
  EXPECT_EQ(need().total(), 1278 * kMib);
  check_memory(need(), 1278 * kMib);
  EXPECT_THROW(check_memory(need(), 1278 * kMib - 1), Failure);
}

// It is allocated after the first step, before a larger world needs more gradient buffers.
TEST(MemoryEstimate, IncludesTheCopyForCheckpoints) {
  MemoryEstimate copying = need();
  copying.checkpoint_copy = 300 * kMib;
  EXPECT_EQ(copying.total(), 1578 * kMib);
  EXPECT_TRUE(refusal(copying, 1577 * kMib)
                  .starts_with("not enough memory: this training needs about 1578 MiB (weights and "
                               "moments 300, packed weights 50, activations of 4096 tokens 700, "
                               "gradients 100, copy for checkpoints 300), found 1577 MiB"));
}

TEST(TouchBuffers, EndsWhenLessMemoryIsAvailableThanIsLeft) {
  runtime::ThreadPool pool(1);
  const runtime::Buffer<char> first(96 * kMib), second(64 * kMib);
  const auto touched = [&](std::uint64_t available, std::uint64_t others) {
    return touch_buffers({first.bytes(), second.bytes()}, pool,
                         [&, before = available]() mutable {
                           const std::uint64_t now = before;
                           before -= std::min(before, 32 * kMib + others);
                           return now;
                         }) /
           kMib;
  };
  EXPECT_EQ(touched(160 * kMib, 0), 160);
  EXPECT_EQ(touched(160 * kMib - 1, 0), 0);
  // Another process takes as much in the same time.
  EXPECT_EQ(touched(300 * kMib, 32 * kMib), 160);
  EXPECT_EQ(touched(250 * kMib, 32 * kMib), 96);
}

TEST(MemoryEstimate, ErrorSuggestsASmallerBatch) {
  EXPECT_EQ(
      refusal(need(), 800 * kMib),
      "not enough memory: this training needs about 1278 MiB (weights and moments 300, packed "
      "weights 50, activations of 4096 tokens 700, gradients 100), found 800 MiB available, "
      "expected more or a smaller --per_device_train_batch_size");
}

TEST(MemoryEstimate, ErrorSuggestsGradientCheckpointingIfItIsOff) {
  MemoryEstimate recomputable = need();
  recomputable.can_recompute = true;
  EXPECT_TRUE(refusal(recomputable, 800 * kMib)
                  .ends_with("expected more, --gradient_checkpointing or a smaller "
                             "--per_device_train_batch_size"));
}

TEST(MemoryEstimate, ErrorSuggestsASmallerModelIfNoBatchFits) {
  EXPECT_TRUE(refusal(need(), 500 * kMib)
                  .ends_with("found 500 MiB available, expected more or a "
                             "smaller model"));
}

MemoryDemand demand(std::uint64_t held, std::vector<runtime::MemoryPool> pools) {
  return {need().total(), held, std::move(pools)};
}

std::string shared_refusal(const std::vector<MemoryDemand>& by_rank, std::size_t rank) {
  try {
    check_shared_memory(need(), by_rank, rank);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kMemory);
    return failure.what();
  }
  return "";
}

TEST(SharedMemory, IsEnoughForTwoProcessesUpToExactlyTheAvailableMemory) {
  const auto two = [](std::uint64_t left) {
    return std::vector{demand(0, {{"here", left}}), demand(0, {{"here", left}})};
  };
  EXPECT_EQ(shared_refusal(two(2 * 1278 * kMib), 0), "");
  EXPECT_EQ(
      shared_refusal(two(2 * 1278 * kMib - 1), 1),
      "not enough memory: each of 2 processes that share it needs about 1278 MiB (weights and "
      "moments 300, packed weights 50, activations of 4096 tokens 700, gradients 100), found 2555 "
      "MiB available to them, expected more, fewer processes or a smaller "
      "--per_device_train_batch_size");
  EXPECT_NE(shared_refusal(two(1000 * kMib), 1).find("fewer processes or a smaller model"),
            std::string::npos);
}

// Each pod has its own memory limit; both share the memory of the machine.
TEST(SharedMemory, IsCheckedForEachPool) {
  const runtime::MemoryPool machine{"machine", 4000 * kMib};
  const std::vector<MemoryDemand> pods = {demand(0, {machine, {"pod 1", 1300 * kMib}}),
                                          demand(0, {machine, {"pod 2", 1300 * kMib}})};
  EXPECT_EQ(shared_refusal(pods, 0), "");
  EXPECT_EQ(shared_refusal(pods, 1), "");
  const std::vector<MemoryDemand> one_pod = {demand(0, {machine, {"pod 1", 1300 * kMib}}),
                                             demand(0, {machine, {"pod 1", 1300 * kMib}}),
                                             demand(0, {machine, {"pod 2", 1300 * kMib}})};
  EXPECT_NE(shared_refusal(one_pod, 0), "");
  EXPECT_NE(shared_refusal(one_pod, 1), "");
  EXPECT_EQ(shared_refusal(one_pod, 2), "") << "pod 2 and the machine have enough memory";
}

// Memory that a process already holds is not part of `left`, so its demand is only the rest.
TEST(SharedMemory, CountsHeldMemoryOnce) {
  const std::uint64_t left = 1300 * kMib;
  EXPECT_EQ(shared_refusal({demand(1278 * kMib, {{"here", left}}), demand(0, {{"here", left}})}, 1),
            "");
  EXPECT_NE(shared_refusal({demand(1200 * kMib, {{"here", left}}), demand(0, {{"here", left}})}, 1),
            "");
}

// The processes read `left` at different times; all of them decide with the lowest value.
TEST(SharedMemory, GivesTheSameResultOnAllRanks) {
  const std::vector<MemoryDemand> two = {demand(0, {{"here", 2600 * kMib}}),
                                         demand(0, {{"here", 2500 * kMib}})};
  EXPECT_NE(shared_refusal(two, 0), "");
  EXPECT_EQ(shared_refusal(two, 0), shared_refusal(two, 1));
}

// need() is 1278 MiB.
TEST(SharedMemory, IsDividedAmongTheProcessesThatMayUseMore) {
  const runtime::MemoryPool machine{"machine", 1000 * kMib};
  const std::vector<MemoryDemand> pods = {
      demand(1278 * kMib, {machine, {"pod 1", 300 * kMib}}),
      demand(1178 * kMib, {machine, {"pod 2", 800 * kMib}}),
  };
  EXPECT_EQ(spare_memory(pods, 0), 300 * kMib) << "the limit of its pod";
  EXPECT_EQ(spare_memory(pods, 1), 450 * kMib)
      << "half of what the machine has left after the second process holds all it needs";
  EXPECT_EQ(spare_memory({demand(0, {{"here", 1000 * kMib}})}, 0), 0U);
}

TEST(SharedMemory, SurvivesEncodingAndDecoding) {
  const MemoryDemand sent = demand(7, {{"machine 7d0c", 11}, {"machine 7d0c cgroup 1:2", 13}});
  const MemoryDemand received = decode_demand(encode(sent));
  EXPECT_EQ(received.need, sent.need);
  EXPECT_EQ(received.held, 7);
  ASSERT_EQ(received.pools.size(), 2);
  EXPECT_EQ(received.pools[0].name, "machine 7d0c");
  EXPECT_EQ(received.pools[1].left, 13);
  for (const char* text : {"", "{}", "{\"need\":1,\"held\":0,\"pools\":{\"x\":\"y\"}}"}) {
    EXPECT_THROW(decode_demand(text), Failure) << text;
  }
}

TEST(SharedMemory, IsMeasuredForThisProcess) {
  const MemoryDemand now = current_demand(100, 30);
  EXPECT_EQ(now.need, 100);
  EXPECT_EQ(now.held, 30);
  EXPECT_FALSE(now.pools.empty());
  EXPECT_EQ(current_demand(100, 101).held, 100) << "a part of the need";
}

}  // namespace
}  // namespace tilewright::train
