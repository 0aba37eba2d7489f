// A worker that is slow for a while: the log names it, its shards move to the other and come back,
// and the weights are bitwise those of one process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace tilewright {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class SlowWorker : public testing::Training {
 protected:
  std::string weights_of_one_process(int steps) {
    return train_in_one_process("reference", 2,
                                {"--per_device_train_batch_size=4", "--save_steps=100000",
                                 fmt::format("--max_steps={}", steps)});
  }
  // Two workers and eight shards of one example. The delays for each shard are most of the time of
  // a step, and a window of the balancer is five steps. Worker 1 is slow in the first 25 steps,
  // then a little faster than worker 0.
  void train_with_a_slow_worker(int steps, const std::string& trainer_lines) {
    write_manifest({.name = "slow",
                    .min_replicas = 2,
                    .batch_size = 4,
                    .max_steps = steps,
                    .save_steps = 100'000,
                    .trainer_lines = trainer_lines});
    const testing::ScopedFault fault(
        "step.shard@0-24,worker=0,delay=25;step.shard@0-24,worker=1,delay=150;"
        "step.shard@25-100000,worker=0,delay=50;step.shard@25-100000,worker=1,delay=40");
    ASSERT_EQ(run({"up", "job.yaml"}, "tilewright"), 0) << output_;
    log_ = testing::read_text(folder() / ".tilewright/slow/logs/slow-worker-0.log");
  }

  std::string log_;  // of rank 0
};

TEST_F(SlowWorker, IsNamedAndRelievedWhileItIsSlowWithTheSameWeights) {
  constexpr int kSteps = 70;
  const std::string expected = weights_of_one_process(kSteps);
  train_with_a_slow_worker(kSteps, "");
  EXPECT_EQ(digest(), expected);
  EXPECT_THAT(log_, ContainsRegex("speed: worker 1 is slow [(][0-9]+ ms per step, others [0-9]+ "
                                  "ms[)]: now [123] of 8 shards, was 4"));
  // The even split returns with the end of the slowness or, if it is better, before.
  EXPECT_THAT(log_, ContainsRegex("speed: worker 1 is no longer slow [(][0-9]+ ms per step, "
                                  "others [0-9]+ ms[)]: (now|keeps) 4 of 8 shards"));
}

TEST_F(SlowWorker, KeepsItsShardsWithoutRebalancing) {
  constexpr int kSteps = 20;
  const std::string expected = weights_of_one_process(kSteps);
  train_with_a_slow_worker(kSteps, "    rebalance_shards: false");
  EXPECT_EQ(digest(), expected);
  EXPECT_THAT(log_, Not(HasSubstr("speed: ")));
}

}  // namespace
}  // namespace tilewright
