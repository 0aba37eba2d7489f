#include "worker/train/hand_over.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tilewright::train {
namespace {

// When a worker is told to stop.
enum class Signal { kInStep, kBeforeExchange, kAfterExchange, kNever };
constexpr int kSignals = 4;

struct Case {
  std::vector<Signal> signals;  // by rank
  std::vector<bool> heard;      // by rank: whether its exchange succeeds
};

std::vector<HandOver> decide(const Case& one) {
  const auto all_before = [&](Signal last) {
    return std::ranges::all_of(one.signals, [&](Signal signal) { return signal <= last; });
  };
  std::vector<HandOver> result;
  for (std::size_t rank = 0; rank < one.signals.size(); ++rank) {
    Departure worker{.is_rank0 = rank == 0,
                     .said_to_leave = one.signals[rank] == Signal::kInStep,
                     .all_said_to_leave = all_before(Signal::kInStep),
                     .leaves = one.signals[rank] <= Signal::kBeforeExchange};
    if (one.heard[rank]) worker.all_leave = all_before(Signal::kBeforeExchange);
    result.push_back(hand_over(worker));
  }
  return result;
}

// All cases of up to four workers in which at least one completes the exchange.
std::vector<Case> all_cases() {
  std::vector<Case> result;
  for (int world = 1; world <= 4; ++world) {
    int combinations = 1;
    for (int rank = 0; rank < world; ++rank) combinations *= kSignals;
    for (int combination = 0; combination < combinations; ++combination) {
      for (int heard = 1; heard < 1 << world; ++heard) {
        Case one;
        for (int rank = 0, rest = combination; rank < world; ++rank, rest /= kSignals) {
          one.signals.push_back(static_cast<Signal>(rest % kSignals));
          one.heard.push_back((heard >> rank & 1) != 0);
        }
        result.push_back(one);
      }
    }
  }
  return result;
}

TEST(HandOver, LosesNoStateWhateverTheWorkersHear) {
  for (const Case& one : all_cases()) {
    if (std::ranges::find(one.signals, Signal::kNever) != one.signals.end()) continue;
    const std::vector<HandOver> decisions = decide(one);
    EXPECT_TRUE(std::ranges::any_of(decisions, [](const HandOver& worker) {
      return worker.writes || !worker.is_kept;
    })) << ::testing::PrintToString(one.heard);
  }
}

TEST(HandOver, WritesOneCheckpointInTheEpochAndOnlyIfNobodyStays) {
  for (const Case& one : all_cases()) {
    const std::vector<HandOver> decisions = decide(one);
    for (std::size_t rank = 1; rank < decisions.size(); ++rank) {
      EXPECT_FALSE(decisions[rank].writes);
    }
    const bool all_heard = std::ranges::find(one.heard, false) == one.heard.end();
    const bool all_leave = std::ranges::all_of(
        one.signals, [](Signal signal) { return signal <= Signal::kBeforeExchange; });
    if (all_heard) {
      EXPECT_EQ(decisions.front().writes, all_leave);
    }
  }
}

TEST(HandOver, AWorkerWithALaterSignalDoesNotRelyOnTheOthers) {
  for (const Case& one : all_cases()) {
    const bool stays = std::ranges::any_of(
        one.signals, [](Signal signal) { return signal > Signal::kBeforeExchange; });
    if (!stays) continue;
    const std::vector<HandOver> decisions = decide(one);
    for (std::size_t rank = 0; rank < decisions.size(); ++rank) {
      if (one.signals[rank] > Signal::kBeforeExchange) {
        EXPECT_FALSE(decisions[rank].is_kept);
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::train
