#include "worker/collectives/idle_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <future>

namespace tilewright::collectives {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    out = FileDescriptor(ends[0]);
    in = FileDescriptor(ends[1]);
  }
  void write_byte() const { EXPECT_EQ(write(in.get(), "x", 1), 1); }
  pollfd entry() const { return {out.get(), POLLIN, 0}; }
  FileDescriptor out, in;
};

class IdleWatchTest : public ::testing::Test {
 protected:
  // The descriptors that wait() returns; the signal makes sure that it returns.
  std::vector<int> ready() {
    signal.signal();
    std::vector<int> fds;
    for (const pollfd& entry : watch.wait()) fds.push_back(entry.fd);
    signal.clear();
    return fds;
  }

  net::WakeUp signal;
  IdleWatch watch{signal};
  Pipe first, second;
};

TEST_F(IdleWatchTest, ReportsEachArmedDescriptorOnce) {
  watch.arm({first.entry(), second.entry()});
  EXPECT_TRUE(watch.armed());
  EXPECT_EQ(ready(), std::vector<int>{});
  first.write_byte();
  EXPECT_EQ(ready(), std::vector{first.out.get()});
  EXPECT_EQ(ready(), std::vector<int>{}) << "the byte is unread, but reported";
  second.write_byte();
  EXPECT_EQ(ready(), std::vector{second.out.get()});
}

TEST_F(IdleWatchTest, ReportsWhatHappenedBeforeItWasArmed) {
  first.write_byte();
  for (int round = 0; round < 2; ++round) {
    watch.arm({first.entry()});
    const std::vector<pollfd> entries = watch.wait();
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries.front().revents, POLLIN);
  }
}

TEST_F(IdleWatchTest, ReportsNoDataAfterDisarm) {
  watch.arm({first.entry()});
  watch.disarm();
  EXPECT_FALSE(watch.armed());
  first.write_byte();
  EXPECT_EQ(ready(), std::vector<int>{});
}

TEST_F(IdleWatchTest, AnotherThreadArmsItsSleep) {
  auto sleeper = std::async(std::launch::async, [this] { return watch.wait(); });
  watch.arm({first.entry()});
  first.write_byte();
  const std::vector<pollfd> entries = sleeper.get();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries.front().fd, first.out.get());
}

TEST_F(IdleWatchTest, ReportsTheEndOfAConnection) {
  watch.arm({first.entry()});
  first.in.reset();
  EXPECT_EQ(ready(), std::vector{first.out.get()});
}

}  // namespace
}  // namespace tilewright::collectives
