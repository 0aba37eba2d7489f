// Tests of WorkQueue with threads and with an injected clock.
#include "controller/workqueue/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace tilewright::workqueue {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

MonotonicTime soon() { return monotonic_now() + seconds(20); }

std::string taken_key(const WorkQueue::Taken& taken) {
  const auto* key = std::get_if<std::string>(&taken);
  return key ? *key : "";
}

TEST(WorkQueue, WakesAWaitingWorker) {
  WorkQueue queue;
  auto taken = std::async(std::launch::async, [&queue] { return queue.take(soon()); });
  queue.add("a");
  EXPECT_EQ(taken_key(taken.get()), "a");
}

TEST(WorkQueue, TimesOutAtTheDeadline) {
  WorkQueue queue;
  EXPECT_TRUE(std::holds_alternative<WorkQueue::TimedOut>(queue.take(monotonic_now())));
  EXPECT_TRUE(
      std::holds_alternative<WorkQueue::TimedOut>(queue.take(monotonic_now() + milliseconds(2))));
}

TEST(WorkQueue, ReturnsADelayedKeyOnTime) {
  WorkQueue queue;
  const MonotonicTime before = monotonic_now();
  queue.add_after("late", seconds(100));
  auto taken = std::async(std::launch::async, [&queue] { return queue.take(soon()); });
  queue.add_after("early", milliseconds(20));
  EXPECT_EQ(taken_key(taken.get()), "early");
  EXPECT_GE(monotonic_now() - before, milliseconds(20));
}

TEST(WorkQueue, UsesTheInjectedClock) {
  std::atomic<std::int64_t> second = 0;
  const auto clock = [&second] { return MonotonicTime() + seconds(second.load()); };
  WorkQueue queue(Backoff(), clock);
  queue.add_after("a", seconds(3600));
  auto taken = std::async(std::launch::async, [&] { return queue.take(clock() + seconds(10000)); });
  second = 3600;
  queue.add("b");  // wakes the thread, which reads the clock
  // The thread may have begun only now.
  const std::set<std::string> keys = {taken_key(taken.get()), taken_key(queue.take(clock()))};
  EXPECT_EQ(keys, (std::set<std::string>{"a", "b"}));
}

TEST(WorkQueue, BacksOffAKeyThatFailsUntilItIsForgotten) {
  MonotonicTime now = MonotonicTime() + seconds(1);
  WorkQueue queue(Backoff(), [&now] { return now; });
  const auto expect_delay = [&](int delay) {
    queue.add_rate_limited("a");
    now += milliseconds(delay - 1);
    EXPECT_EQ(taken_key(queue.take(now)), "");
    now += milliseconds(1);
    EXPECT_EQ(taken_key(queue.take(now)), "a");
    queue.done("a");
  };
  for (const int delay : {5, 10, 20}) expect_delay(delay);
  EXPECT_EQ(queue.stats().retries, 3U);
  queue.forget("a");
  expect_delay(5);
}

TEST(WorkQueue, ReportsStatistics) {
  MonotonicTime now = MonotonicTime() + seconds(1);
  WorkQueue queue(Backoff(), [&now] { return now; });
  queue.add("a");
  queue.add_after("b", seconds(60));
  now += seconds(2);
  EXPECT_EQ(queue.stats().depth, 1U);
  EXPECT_EQ(queue.stats().oldest_queued, seconds(2));
  EXPECT_EQ(taken_key(queue.take(now)), "a");
  now += seconds(3);
  EXPECT_EQ(queue.stats().longest_processing, seconds(3));
  EXPECT_EQ(queue.stats().processing, 1U);
  queue.done("a");
  EXPECT_EQ(queue.stats().processing, 0U);
}

TEST(WorkQueue, WakesWaitingWorkersAtShutdown) {
  WorkQueue queue;
  std::vector<std::future<WorkQueue::Taken>> waiting;
  waiting.reserve(3);
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&queue] { return queue.take(soon()); }));
  }
  queue.shut_down();
  for (auto& taken : waiting) {
    EXPECT_TRUE(std::holds_alternative<WorkQueue::ShutDown>(taken.get()));
  }
}

TEST(WorkQueue, ReturnsQueuedKeysAfterShutdownAndAcceptsNoMore) {
  WorkQueue queue;
  queue.add("a");
  queue.add("b");
  ASSERT_EQ(taken_key(queue.take(soon())), "a");
  queue.shut_down();
  EXPECT_EQ(taken_key(queue.take(soon())), "b");
  queue.done("b");
  queue.add("c");
  queue.done("a");
  EXPECT_TRUE(std::holds_alternative<WorkQueue::ShutDown>(queue.take(soon())));
}

TEST(WorkQueue, NeverGivesAKeyToTwoWorkersAndLosesNoAdd) {
  constexpr int kKeys = 8;
  constexpr int kAdditions = 4000;
  WorkQueue queue;
  std::vector<std::atomic<int>> processing(kKeys), processed(kKeys), added(kKeys);
  std::atomic<int> conflicts = 0;
  std::vector<std::jthread> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (true) {
        const auto taken = queue.take(soon());
        if (!std::holds_alternative<std::string>(taken)) return;
        const std::string key = taken_key(taken);
        const std::size_t index = std::stoul(key);
        if (processing[index].fetch_add(1) != 0) ++conflicts;
        processed[index] = added[index].load();  // the state that a reconcile would read
        processing[index].fetch_sub(1);
        queue.done(key);
      }
    });
  }
  for (int i = 0; i < kAdditions; ++i) {
    ++added[i % kKeys];
    queue.add(std::to_string(i % kKeys));
  }
  queue.shut_down();
  workers.clear();  // joins: the workers first process all queued keys
  EXPECT_EQ(conflicts, 0);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(processed[i], added[i]) << "an addition was lost";
}

// A lost wake-up would show only as a take() that lasts until its deadline.
TEST(WorkQueue, WakesAWorkerForEveryKeyAndEveryDueTime) {
  WorkQueue queue;
  std::mutex mutex;
  std::condition_variable taken_changed;
  int taken = 0;
  std::vector<std::jthread> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&, brief = i == 0] {
      while (true) {
        // At any time one of the workers is about to time out.
        const auto key = queue.take(brief ? monotonic_now() + std::chrono::microseconds(50)
                                          : monotonic_now() + std::chrono::hours(1));
        if (std::holds_alternative<WorkQueue::ShutDown>(key)) return;
        if (!std::holds_alternative<std::string>(key)) continue;
        queue.done(taken_key(key));
        const std::lock_guard lock(mutex);
        ++taken;
        taken_changed.notify_one();
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
      const std::string name = key + "." + std::to_string(i);
      switch ((round + i) % 4) {
        case 0:
          queue.add(name);
          break;
        case 1:
          queue.add_after(name, std::chrono::microseconds(round % 97));
          break;
        case 2:
          queue.add_after(name, milliseconds(1) - std::chrono::microseconds(round % 900));
          break;
        default:
          queue.add_after(name, Duration::zero());
      }
    }
    std::unique_lock lock(mutex);
    ASSERT_TRUE(taken_changed.wait_for(lock, seconds(20), [&] { return taken == before + keys; }))
        << "round " << round;
  }
  queue.shut_down();
}

}  // namespace
}  // namespace tilewright::workqueue
