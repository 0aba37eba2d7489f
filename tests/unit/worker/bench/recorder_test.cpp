#include "worker/bench/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "worker/bench/training_setup.h"
#include "worker/nn/flops.h"

namespace tilewright::bench {
namespace {

using std::chrono::milliseconds;

TEST(Recorder, GroupsCallsByKernelAndShape) {
  Recorder recorder;
  const std::size_t linear = recorder.add_kernel("linear forward", false);
  const std::size_t gelu = recorder.add_kernel("gelu_forward", false);
  const Work wide{.rows = 8, .k = 2, .n = 3, .operations = 96};
  const Work narrow{.rows = 8, .k = 3, .n = 2, .operations = 96};
  recorder.add(linear, wide, milliseconds(10));
  recorder.add(gelu, {.bytes = 50}, milliseconds(1));
  recorder.add(linear, narrow, milliseconds(20));
  recorder.add(linear, wide, milliseconds(30));
  const std::vector<KernelTime> times = recorder.times(2, 1);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].kernel, "linear forward");
  EXPECT_EQ(times[0].shape, "8 x 2 x 3");
  EXPECT_EQ(times[0].calls, 1);
  EXPECT_DOUBLE_EQ(times[0].seconds, 0.020);
  EXPECT_EQ(times[0].operations, 96);
  EXPECT_EQ(times[1].kernel, "gelu_forward");
  EXPECT_EQ(times[1].shape, "");
  EXPECT_EQ(times[1].bytes, 25);
  EXPECT_EQ(times[2].shape, "8 x 3 x 2");
}

TEST(Recorder, DividesTheTimeOfTasksByTheThreads) {
  Recorder recorder;
  const std::size_t adamw = recorder.add_kernel("adamw", true);
  runtime::ThreadPool pool(4);
  pool.run(100, [&](std::int64_t, int) { recorder.add(adamw, {.bytes = 7}, milliseconds(4)); });
  const std::vector<KernelTime> times = recorder.times(1, 4);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times[0].calls, 100);
  EXPECT_DOUBLE_EQ(times[0].seconds, 0.100);
  EXPECT_EQ(times[0].bytes, 700);
  recorder.clear();
  EXPECT_TRUE(recorder.times(1, 4).empty());
}

Workload small_workload(bool question_answering) {
  return {.model = "minilm",
          .question_answering = question_answering,
          .lengths = {5, 11, 3, 1},
          .threads = 2};
}

class ProfiledStep : public ::testing::TestWithParam<bool> {};

TEST_P(ProfiledStep, CountsTheOperationsOfAStepAndChangesNoBit) {
  const Workload workload = small_workload(GetParam());
  const runtime::Isa isa = runtime::detect_cpu().isas.back();
  const nn::Batch batch = random_batch(workload, 8);
  TrainingSetup<runtime::bf16> plain(workload, isa, 8);
  plain.step(batch);

  TrainingSetup<runtime::bf16> setup(workload, isa, 8);
  Recorder recorder;
  const ProfiledOps<runtime::bf16> profiled(setup.plain_ops(), setup.plain_parameter_ops(),
                                            recorder);
  setup.use(profiled.ops(), profiled.parameter_ops());
  setup.step(batch);
  EXPECT_TRUE(std::ranges::equal(setup.model().parameters(), plain.model().parameters()));

  double operations = 0;
  double calls_of_adamw = 0;
  double bytes_of_adamw = 0;
  for (const KernelTime& kernel : recorder.times(1, 2)) {
    operations += kernel.operations;
    EXPECT_GT(kernel.seconds, 0) << kernel.kernel;
    EXPECT_GT(kernel.operations + kernel.bytes, 0) << kernel.kernel;
    if (kernel.kernel == "adamw") {
      calls_of_adamw += kernel.calls;
      bytes_of_adamw += kernel.bytes;
    }
  }
  EXPECT_DOUBLE_EQ(operations, nn::step_flops(setup.config(), batch));
  EXPECT_GT(calls_of_adamw, 0);
  // 28 bytes of each element with a gradient; the last element is the loss. In the first step the
  // other rows of words have zero moments and are skipped.
  const double gradients = static_cast<double>(setup.gradient().size() - 1);
  EXPECT_DOUBLE_EQ(bytes_of_adamw, 28 * gradients);
}

INSTANTIATE_TEST_SUITE_P(Heads, ProfiledStep, ::testing::Bool(), [](const auto& head) {
  return head.param ? "QuestionAnswering" : "Classification";
});

}  // namespace
}  // namespace tilewright::bench
