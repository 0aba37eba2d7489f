#include "worker/bench/scaling_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/result.h"

namespace tilewright::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LinkRate, HasTheNotationOfTc) {
  EXPECT_EQ(parse_link_rate("25Gbit"), 25e9);
  EXPECT_EQ(parse_link_rate("1.5gbit"), 1.5e9);
  EXPECT_EQ(parse_link_rate("800MBIT"), 800e6);
  EXPECT_EQ(parse_link_rate("1kbit"), 1e3);
  EXPECT_EQ(parse_link_rate("64000bit"), 64e3);
}

TEST(LinkRate, IsRefusedWithTheExpectedForm) {
  for (const char* bad : {"fast", "", "25", "Gbit", "25GB", "25 Gbit", "25Gbits", "-1Gbit", "0Gbit",
                          "1e3Gbit", "infGbit", "nanGbit", "1001Gbit", "999bit"}) {
    try {
      parse_link_rate(bad);
      FAIL() << bad;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_THAT(failure.what(), HasSubstr(std::string("--link: found \"") + bad +
                                            "\", expected a rate from 1kbit"));
    }
  }
}

TEST(LinkRate, IsPrintedAsItIsRead) {
  for (const char* text : {"25Gbit", "2.5Gbit", "800Mbit", "1kbit"}) {
    EXPECT_EQ(format_link_rate(parse_link_rate(text)), text);
  }
}

// At 25 Gbit/s (3.1 GB/s and 0.5 CPU seconds per GB) a communication thread is always busy, at
// 10 Gbit/s for 0.625 of the time, at 1 Gbit/s for 0.0625. Half of the CPUs may be.
TEST(DefaultSlowdown, LeavesHalfOfTheCpusIdle) {
  EXPECT_EQ(default_slowdown(8, 1, 2, 25e9), 8);
  EXPECT_EQ(default_slowdown(8, 1, 2, 10e9), 5);
  EXPECT_EQ(default_slowdown(2, 1, 2, 25e9), 2);
  EXPECT_EQ(default_slowdown(8, 1, 4, 25e9), 4);
  EXPECT_GT(default_slowdown(8, 4, 2, 100e9), 4 * default_slowdown(8, 1, 2, 25e9) - 1);
}

TEST(DefaultSlowdown, IsOneIfTheMachineIsFastEnough) {
  EXPECT_EQ(default_slowdown(8, 1, 2, 1e9), 1);
  EXPECT_EQ(default_slowdown(8, 1, 64, 25e9), 1);
  EXPECT_EQ(default_slowdown(1, 1, 2, 25e9), 1);
}

TEST(BucketTimes, AreOfTheFirstEventThatCompletesTheBucket) {
  const std::vector<runtime::Range> buckets = {{0, 4}, {4, 8}, {8, 12}, {12, 14}};
  // Backward reports 3, 9 and 12 elements; training appends the last two after it.
  const std::vector<GradientReady> events = {{3, 0.1}, {9, 0.2}, {12, 0.3}};
  EXPECT_THAT(bucket_times(buckets, events, 0.5), ElementsAre(0.2, 0.2, 0.3, 0.5));
}

TEST(ShortestTimeline, IsOfTheShortestStep) {
  const std::vector<StepTimeline> timelines = {{.bucket_ready = {1}, .compute = 6, .update = 3},
                                               {.bucket_ready = {2}, .compute = 7, .update = 1},
                                               {.bucket_ready = {3}, .compute = 8, .update = 1}};
  EXPECT_EQ(&shortest_timeline(timelines), &timelines[1]);
}

TEST(FasterHosts, ComputeInLessTime) {
  const StepTimeline timeline = faster({.bucket_ready = {1, 2}, .compute = 4, .update = 0.5}, 2);
  EXPECT_THAT(timeline.bucket_ready, ElementsAre(0.5, 1));
  EXPECT_EQ(timeline.compute, 2);
  EXPECT_EQ(timeline.update, 0.25);
}

TEST(ScalingRows, AreComparedWithOneNode) {
  std::vector<ScalingRow> rows(2);
  rows[0] = {.nodes = 1, .step = 0.75};
  // Four nodes do four times the work in 4/3 of the time.
  rows[1] = {.nodes = 4, .step = 1, .communication_cpu = 0.5};
  compare_with_one_node(rows, 2);
  EXPECT_EQ(rows[0].speedup, 1);
  EXPECT_EQ(rows[0].efficiency, 1);
  EXPECT_EQ(rows[1].speedup, 3);
  EXPECT_EQ(rows[1].efficiency, 0.75);
  // Two threads that compute lose half of 0.5 s each.
  EXPECT_EQ(rows[1].shared_step, 1.25);
  EXPECT_EQ(rows[1].shared_efficiency, 0.6);
}

TEST(ScalingRows, SayHowMuchOfTheExchangeBackwardHides) {
  EXPECT_EQ((ScalingRow{.exchange = 4, .exposed = 1}.hidden_share()), 0.75);
  EXPECT_EQ((ScalingRow{.exchange = 4, .exposed = 5}.hidden_share()), 0);
  EXPECT_EQ(ScalingRow{}.hidden_share(), 1) << "one node exchanges nothing";
}

TEST(PublishedScaling, HasTheFiguresForTwoAndFourNodes) {
  const auto published = published_scaling();
  ASSERT_EQ(published.size(), 3u);
  EXPECT_EQ(published[0].speedup, 1.7);
  EXPECT_EQ(published[1].speedup, 3.0);
  EXPECT_DOUBLE_EQ(published[2].efficiency(), 0.87);
}

}  // namespace
}  // namespace tilewright::bench
