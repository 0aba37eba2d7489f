#include "common/rendezvous/limits.h"

#include <gtest/gtest.h>

#include "common/rendezvous/messages.h"
#include "common/rendezvous/types.h"

namespace tilewright::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Limits, AJobOfAnySizeCanSendTheLargestMessageAndReconnectAllProcesses) {
  for (const int processes : {1, 8, kMaxWorld}) {
    const JobLimits share = job_limits({}, processes);
    EXPECT_GE(share.connections, 2u * static_cast<unsigned>(processes));
    EXPECT_GE(share.buffered_bytes, 2 * kMaxMessageBytes);
    EXPECT_GT(share.messages_per_second, processes);
  }
}

TEST(Limits, TheLargestJobLeavesHalfForOthers) {
  const Limits limits;
  const JobLimits share = job_limits(limits, kMaxWorld);
  EXPECT_LE(share.connections, limits.connections / 2);
  EXPECT_LE(share.buffered_bytes, limits.buffered_bytes / 2);
}

TEST(Limits, ALongMessageCostsMoreThanAShortOne) {
  EXPECT_LT(message_cost(400), 2);
  EXPECT_GT(message_cost(1 << 20), 200);
}

TEST(TokenBucket, GrantsTheRateAndABurst) {
  TokenBucket bucket;
  MonotonicTime now{seconds(1000)};
  constexpr double kRate = 10;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(bucket.take(1, kRate, now)) << i;
  EXPECT_FALSE(bucket.take(1, kRate, now)) << "10 s worth of tokens are taken";
  now += milliseconds(100);
  EXPECT_TRUE(bucket.take(1, kRate, now));
  EXPECT_FALSE(bucket.take(1, kRate, now));
  now += std::chrono::hours(1);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(bucket.take(1, kRate, now)) << i;
  EXPECT_FALSE(bucket.take(1, kRate, now)) << "a pause earns no more than the burst";
}

}  // namespace
}  // namespace tilewright::rendezvous
