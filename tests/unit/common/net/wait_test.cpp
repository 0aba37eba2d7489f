// Tests of deadlines, pauses and the cancellation of blocking calls.
#include "common/net/wait.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>
#include <vector>

namespace tilewright::net {
namespace {

using std::chrono::milliseconds;

TEST(Wait, SleepsUntilTheDeadline) {
  const Wait wait = within(milliseconds(5));
  EXPECT_TRUE(sleep_until(wait));
  EXPECT_GE(monotonic_now(), wait.deadline);
  EXPECT_TRUE(sleep_until(wait)) << "at once";
}

TEST(Wait, PausesUnlessTheWaitEndsFirst) {
  EXPECT_TRUE(pause_for(within(std::chrono::hours(1)), milliseconds(1)));
  EXPECT_FALSE(pause_for(within(milliseconds(1)), std::chrono::hours(1)));
  WakeUp cancel;
  cancel.signal();
  EXPECT_FALSE(pause_for(within(std::chrono::hours(1), &cancel), milliseconds(1)));
}

TEST(Wait, GivesPollAtMostTheLongestWaitInMilliseconds) {
  const MonotonicTime now = monotonic_now();
  EXPECT_EQ(poll_timeout(now - milliseconds(5), now), 0);
  EXPECT_EQ(poll_timeout(now + milliseconds(5), now), 5);
  EXPECT_EQ(poll_timeout(now + std::chrono::nanoseconds(1), now), 1) << "rounded up";
  EXPECT_EQ(poll_timeout(MonotonicTime::max(), now), 3'600'000);
}

TEST(WakeUp, StaysSignalledUntilCleared) {
  WakeUp cancel;
  EXPECT_TRUE(sleep_until(within(milliseconds(5), &cancel)));
  cancel.signal();
  cancel.signal();
  EXPECT_FALSE(sleep_until(within(std::chrono::hours(1), &cancel)));
  EXPECT_FALSE(sleep_until(within(std::chrono::hours(1), &cancel)));
  cancel.clear();
  EXPECT_TRUE(sleep_until(within(milliseconds(5), &cancel)));
}

// A wait on the descriptor alone, whose thread then asks why it ended.
TEST(WakeUp, IsSignalledWhenItsDescriptorIsReadable) {
  constexpr int kTimes = 5000;
  WakeUp ping, pong;
  const auto answer = [&](WakeUp& awaited, WakeUp& next) {
    int missed = 0;
    for (int i = 0; i < kTimes; ++i) {
      if (wait_ready(awaited.fd(), POLLIN, within(std::chrono::seconds(60))) != Ready::kYes) break;
      missed += !awaited.signalled();
      awaited.clear();
      next.signal();
    }
    return missed;
  };
  auto other = std::async(std::launch::async, [&] { return answer(ping, pong); });
  ping.signal();
  EXPECT_EQ(answer(pong, ping), 0);
  EXPECT_EQ(other.get(), 0);
}

// However signal() and clear() of several threads interleave.
TEST(WakeUp, HasItsDescriptorReadableWhileSignalled) {
  WakeUp cancel;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&cancel, i] {
      for (int times = 0; times < 20000; ++times) i < 2 ? cancel.signal() : cancel.clear();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto readable = [&] {
    return wait_ready(cancel.fd(), POLLIN, within(milliseconds(0))) == Ready::kYes;
  };
  EXPECT_EQ(readable(), cancel.signalled());
  cancel.signal();
  EXPECT_TRUE(readable() && cancel.signalled());
  cancel.clear();
  EXPECT_FALSE(readable() || cancel.signalled());
}

}  // namespace
}  // namespace tilewright::net
