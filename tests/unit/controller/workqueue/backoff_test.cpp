// Tests of the back-off delays of failing keys.
#include "controller/workqueue/backoff.h"

#include <gtest/gtest.h>

namespace tilewright::workqueue {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Backoff, DoublesFrom5MillisecondsTo1000Seconds) {
  Backoff backoff;
  for (const int expected : {5, 10, 20, 40, 80, 160, 320, 640, 1280}) {
    EXPECT_EQ(backoff.next("a"), milliseconds(expected));
  }
  for (int i = 0; i < 100; ++i) backoff.next("a");
  EXPECT_EQ(backoff.next("a"), seconds(1000));
}

TEST(Backoff, CountsEachKeySeparately) {
  Backoff backoff;
  backoff.next("a");
  backoff.next("a");
  EXPECT_EQ(backoff.next("b"), milliseconds(5));
  EXPECT_EQ(backoff.next("a"), milliseconds(20));
  EXPECT_EQ(backoff.next("b"), milliseconds(10));
}

TEST(Backoff, ForgetsAfterSuccess) {
  Backoff backoff;
  backoff.next("a");
  backoff.next("a");
  backoff.forget("a");
  EXPECT_EQ(backoff.next("a"), milliseconds(5));
}

TEST(Backoff, AddsAtMostTenPercentJitter) {
  Backoff none({}, [] { return 0.0; });
  EXPECT_EQ(none.next("a"), milliseconds(5));
  Backoff half({milliseconds(100), seconds(1)}, [] { return 0.5; });
  EXPECT_EQ(half.next("a"), milliseconds(105));
}

}  // namespace
}  // namespace tilewright::workqueue
