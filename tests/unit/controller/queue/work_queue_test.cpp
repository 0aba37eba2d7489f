// The queue among threads, and with a clock that the test moves.
#include "controller/queue/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>
#include <vector>

namespace tilewright::queue {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

MonotonicTime soon() { return monotonic_now() + seconds(20); }

std::string key_of(const WorkQueue::Taken& taken) {
  const auto* key = std::get_if<std::string>(&taken);
  return key ? *key : "";
}

TEST(WorkQueue, WakesAWorkerThatWaits) {
  WorkQueue queue;
  auto taken = std::async(std::launch::async, [&queue] { return queue.take(soon()); });
  queue.add("a");
  EXPECT_EQ(key_of(taken.get()), "a");
}

TEST(WorkQueue, TimesOutAtTheDeadline) {
  WorkQueue queue;
  EXPECT_TRUE(std::holds_alternative<WorkQueue::TimedOut>(queue.take(monotonic_now())));
  EXPECT_TRUE(
      std::holds_alternative<WorkQueue::TimedOut>(queue.take(monotonic_now() + milliseconds(2))));
}

TEST(WorkQueue, HandsADelayedKeyOutOnTime) {
  WorkQueue queue;
  const MonotonicTime before = monotonic_now();
  queue.add_after("late", seconds(100));
  auto taken = std::async(std::launch::async, [&queue] { return queue.take(soon()); });
  queue.add_after("early", milliseconds(20));
  EXPECT_EQ(key_of(taken.get()), "early");
  EXPECT_GE(monotonic_now() - before, milliseconds(20));
}

TEST(WorkQueue, ReadsTheClockItWasGiven) {
  std::atomic<std::int64_t> second = 0;
  const auto clock = [&second] { return MonotonicTime() + seconds(second.load()); };
  WorkQueue queue(Backoff(), {}, clock);
  queue.add_after("a", seconds(3600));
  auto taken = std::async(std::launch::async, [&] { return queue.take(clock() + seconds(10000)); });
  second = 3600;
  queue.clock_moved();
  EXPECT_EQ(key_of(taken.get()), "a");
}

TEST(WorkQueue, BacksOffAKeyThatFailsUntilItIsForgotten) {
  MonotonicTime now = MonotonicTime() + seconds(1);
  WorkQueue queue(Backoff(), {}, [&now] { return now; });
  for (const int delay : {5, 10, 20}) {
    queue.add_rate_limited("a");
    now += milliseconds(delay - 1);
    EXPECT_EQ(key_of(queue.take(now)), "");
    now += milliseconds(1);
    EXPECT_EQ(key_of(queue.take(now)), "a");
    queue.done("a");
  }
  EXPECT_EQ(queue.failures("a"), 3U);
  EXPECT_EQ(queue.figures().retries, 3U);
  queue.forget("a");
  EXPECT_EQ(queue.failures("a"), 0U);
}

TEST(WorkQueue, TellsItsObserverWaitsAndWork) {
  MonotonicTime now = MonotonicTime() + seconds(1);
  std::vector<Duration> waits, works;
  QueueObserver observer;
  observer.taken = [&waits](Duration waited) { waits.push_back(waited); };
  observer.done = [&works](Duration worked) { works.push_back(worked); };
  WorkQueue queue(Backoff(), observer, [&now] { return now; });
  queue.add("a");
  queue.add_after("b", seconds(60));
  now += seconds(2);
  EXPECT_EQ(queue.figures().depth, 1U);
  EXPECT_EQ(queue.figures().delayed, 1U);
  EXPECT_EQ(queue.figures().oldest_queued, seconds(2));
  EXPECT_EQ(key_of(queue.take(now)), "a");
  now += seconds(3);
  EXPECT_EQ(queue.figures().longest_working, seconds(3));
  queue.done("a");
  EXPECT_EQ(waits, std::vector<Duration>{seconds(2)});
  EXPECT_EQ(works, std::vector<Duration>{seconds(3)});
}

TEST(WorkQueue, ShutsDownWhoeverWaits) {
  WorkQueue queue;
  std::vector<std::future<WorkQueue::Taken>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&queue] { return queue.take(soon()); }));
  }
  queue.shut_down();
  for (auto& taken : waiting) {
    EXPECT_TRUE(std::holds_alternative<WorkQueue::ShutDown>(taken.get()));
  }
}

TEST(WorkQueue, DrainsWhatIsQueuedAndWhatIsInHand) {
  WorkQueue queue;
  queue.add("a");
  queue.add("b");
  ASSERT_EQ(key_of(queue.take(soon())), "a");
  EXPECT_FALSE(queue.drain(monotonic_now() + milliseconds(1))) << "a is in hand, b is queued";
  auto drained = std::async(std::launch::async, [&queue] { return queue.drain(soon()); });
  EXPECT_EQ(key_of(queue.take(soon())), "b");
  queue.done("b");
  queue.add("c");
  queue.done("a");
  EXPECT_TRUE(drained.get());
  EXPECT_TRUE(std::holds_alternative<WorkQueue::ShutDown>(queue.take(soon())));
}

TEST(WorkQueue, LetsNoTwoWorkersHoldOneKeyAndLosesNoAddition) {
  constexpr int kKeys = 8;
  constexpr int kAdditions = 4000;
  WorkQueue queue;
  std::vector<std::atomic<int>> hands(kKeys), seen(kKeys), wanted(kKeys);
  std::atomic<int> clashes = 0;
  std::vector<std::jthread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (true) {
        const auto taken = queue.take(soon());
        if (!std::holds_alternative<std::string>(taken)) return;
        const std::string key = key_of(taken);
        const std::size_t index = std::stoul(key);
        if (hands[index].fetch_add(1) != 0) ++clashes;
        seen[index] = wanted[index].load();  // what a reconcile would read
        hands[index].fetch_sub(1);
        queue.done(key);
      }
    });
  }
  for (int i = 0; i < kAdditions; ++i) {
    ++wanted[i % kKeys];
    queue.add(std::to_string(i % kKeys));
  }
  EXPECT_TRUE(queue.drain(soon()));
  workers.clear();
  EXPECT_EQ(clashes, 0);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(seen[i], wanted[i]) << "an addition was lost";
}

// A wake-up that goes to nobody would be noticed only when a deadline passes.
TEST(WorkQueue, WakesSomebodyForEveryKeyAndEveryDueTime) {
  WorkQueue queue;
  std::mutex mutex;
  std::condition_variable came;
  int taken = 0;
  std::vector<std::jthread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&, brief = i == 0] {
      while (true) {
        // One of them always is about to leave.
        const auto key = queue.take(brief ? monotonic_now() + std::chrono::microseconds(50)
                                          : monotonic_now() + std::chrono::hours(1));
        if (std::holds_alternative<WorkQueue::ShutDown>(key)) return;
        if (!std::holds_alternative<std::string>(key)) continue;
        queue.done(key_of(key));
        const std::lock_guard lock(mutex);
        ++taken;
        came.notify_one();
      }
    });
  }
  for (int round = 0; round < 3000; ++round) {
    const std::string key = std::to_string(round);
    const int keys = 1 + round % 3;
    const int before = [&] {
      const std::lock_guard lock(mutex);
      return taken;
    }();
    for (int i = 0; i < keys; ++i) {
      const std::string one = key + "." + std::to_string(i);
      switch ((round + i) % 4) {
        case 0:
          queue.add(one);
          break;
        case 1:
          queue.add_after(one, std::chrono::microseconds(round % 97));
          break;
        case 2:
          queue.add_after(one, milliseconds(1) - std::chrono::microseconds(round % 900));
          break;
        default:
          queue.add_after(one, Duration::zero());
      }
    }
    std::unique_lock lock(mutex);
    ASSERT_TRUE(came.wait_for(lock, seconds(20), [&] { return taken == before + keys; }))
        << "round " << round;
  }
  queue.shut_down();
}

}  // namespace
}  // namespace tilewright::queue
