#include "worker/bench/slowed_transport.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>

namespace tilewright::bench {
namespace {

using std::chrono::milliseconds;

Duration thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Its write uses 10 ms of CPU time; its other functions do nothing.
class BusyTransport : public collectives::Transport {
 public:
  Result<std::size_t> try_read(int, std::span<std::byte>) override { return std::size_t{0}; }
  Result<std::size_t> try_write(int, std::span<iovec>) override {
    const Duration end = thread_cpu_time() + milliseconds(10);
    while (thread_cpu_time() < end) {
    }
    return std::size_t{7};
  }
  bool reports_late() const override { return true; }
  bool shares_memory(int peer) const override { return peer == 2; }
  bool detects_changes(int peer) const override { return peer == 1; }
  void send_last(int, std::span<iovec>) override {}
  void watch(int, short, std::vector<pollfd>&) override {}
  void watch_idle(int, std::vector<pollfd>&) const override {}
  void note_ready(std::span<const pollfd>) override {}
  void wait(std::vector<pollfd>&, MonotonicTime) override {}
};

TEST(SlowedTransport, SleepsForTheFactorTimesTheCpuTime) {
  BusyTransport busy;
  SlowedTransport slowed(busy, 5);
  Duration elapsed{};
  std::thread([&] {
    const MonotonicTime begin = monotonic_now();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(*slowed.try_write(0, {}), 7u);
    std::vector<pollfd> fds;
    slowed.wait(fds, begin);
    elapsed = monotonic_now() - begin;
  }).join();
  EXPECT_GE(slowed.cpu_seconds(), 0.040);
  // It may owe a sleep that is too short to be made.
  EXPECT_GE(elapsed, 5 * milliseconds(40) - milliseconds(1));
}

TEST(SlowedTransport, IsOtherwiseTheInnerTransport) {
  BusyTransport busy;
  const SlowedTransport slowed(busy, 5);
  EXPECT_TRUE(slowed.reports_late());
  EXPECT_TRUE(slowed.shares_memory(2));
  EXPECT_FALSE(slowed.shares_memory(1));
  EXPECT_TRUE(slowed.detects_changes(1));
  EXPECT_FALSE(slowed.detects_changes(2));
}

}  // namespace
}  // namespace tilewright::bench
