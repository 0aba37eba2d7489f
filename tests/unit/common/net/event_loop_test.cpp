// The loop with a clock that advances only when a test advances it.
#include "common/net/event_loop.h"

#include <gmock/gmock.h>
#include <sys/epoll.h>
#include <time.h>

#include <condition_variable>
#include <future>
#include <set>

#include "tests/support/manual_clock.h"

namespace tilewright::net {
namespace {

using std::chrono::seconds;

class EventLoopTest : public ::testing::Test {
 protected:
  EventLoopTest() : loop_(clock_, mutex_) {}

  void start() {
    loop_.start([this] { return deadline_; },
                [this](Duration gap) {
                  loop_.take_events([this](EventLoop::Id id, std::uint32_t) { seen_.insert(id); });
                  if (clock_.now() >= deadline_) {
                    ++deadlines_;
                    deadline_ = MonotonicTime::max();
                  }
                  ++iterations_;
                  gap_ = std::max(gap_, gap);
                  changed_.notify_all();
                });
  }
  // Waits for what iterations change.
  bool wait_until(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(20), holds);
  }

  int deadlines() {
    const std::scoped_lock lock(mutex_);
    return deadlines_;
  }

  tilewright::testing::ManualClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  MonotonicTime deadline_ = clock_.now() + seconds(10);
  std::set<EventLoop::Id> seen_;
  int deadlines_ = 0;
  int iterations_ = 0;
  Duration gap_{};  // the longest
  EventLoop loop_;
};

TEST_F(EventLoopTest, RunsAtADeadlineOfTheClock) {
  start();
  clock_.advance(seconds(9));
  ASSERT_TRUE(wait_until([this] { return iterations_ > 0; }));
  EXPECT_EQ(deadlines(), 0);
  clock_.advance(seconds(1));
  EXPECT_TRUE(wait_until([this] { return deadlines_ == 1; }));
}

TEST_F(EventLoopTest, RunsWhenAnotherThreadWakesIt) {
  start();
  for (int i = 1; i <= 3; ++i) {
    loop_.wake();
    EXPECT_TRUE(wait_until([&] { return iterations_ >= i; }));
  }
}

// That it did not run is only known if it wakes without a deadline or an event.
TEST_F(EventLoopTest, RunsAtLeastEachSecond) {
  start();
  EXPECT_TRUE(wait_until([this] { return iterations_ >= 2; }));
}

TEST_F(EventLoopTest, AnAdvanceOfTheClockIsNoStall) {
  start();
  clock_.advance(seconds(60));
  ASSERT_TRUE(wait_until([this] { return deadlines_ == 1; }));
  const std::scoped_lock lock(mutex_);
  EXPECT_EQ(gap_, Duration::zero());
}

// Otherwise an overloaded server would never judge a deadline.
TEST(EventLoop, TimeThatIterationsComputeIsNoStall) {
  std::mutex mutex;
  std::promise<Duration> reported;
  double preempted = 0;  // seconds in which other programs had the CPU
  int iterations = 0;
  {
    EventLoop loop(system_clock(), mutex);
    loop.start([] { return monotonic_now(); },
               [&](Duration gap) {
                 if (++iterations == 2) reported.set_value(gap);
                 if (iterations > 1) return;
                 const auto busy = [] {
                   timespec time{};
                   clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
                   return time.tv_sec + time.tv_nsec * 1e-9;
                 };
                 const double least =
                     1.5 * in_seconds(EventLoop::kMaxWait + EventLoop::kStallThreshold);
                 const MonotonicTime begin = monotonic_now();
                 const double busy_before = busy();
                 while (busy() < least) continue;
                 preempted = in_seconds(monotonic_now() - begin) - (busy() - busy_before);
               });
    const double gap = in_seconds(reported.get_future().get());
    EXPECT_LT(gap, 1 + preempted);
  }
}

TEST_F(EventLoopTest, ReportsEachReadyDescriptor) {
  constexpr EventLoop::Id kCount = 2 * EventLoop::kMaxEvents + 1;
  std::vector<WakeUp> descriptors(kCount);
  {
    const std::scoped_lock lock(mutex_);
    for (EventLoop::Id i = 0; i < kCount; ++i) {
      loop_.watch(EventLoop::kFirstId + i, descriptors[i].fd(),
                  i == 0 ? 0U : std::uint32_t{EPOLLIN});
      descriptors[i].signal();
    }
  }
  start();
  EXPECT_TRUE(wait_until([this] { return seen_.size() == kCount - 1; }));
  const std::unique_lock lock(mutex_);
  EXPECT_FALSE(seen_.contains(EventLoop::kFirstId)) << "watched without events";
  loop_.change(EventLoop::kFirstId, descriptors[0].fd(), EPOLLIN);
}

TEST_F(EventLoopTest, EndsWithoutAStart) { loop_.wake(); }

}  // namespace
}  // namespace tilewright::net
