#include "worker/runtime/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/host/binding.h"
#include "tests/support/limited_memory.h"

namespace tilewright::runtime {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      pool.run(tasks, [&](std::int64_t task, int) { runs[static_cast<std::size_t>(task)]++; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, BeginsWithEachThreadsShareOfConsecutiveTasks) {
  ThreadPool pool(3);
  for (int job = 0; job < 20; ++job) {
    std::vector<std::int64_t> first(3, -1);  // task of each thread
    std::atomic<int> started = 0;
    pool.run(7, [&](std::int64_t task, int thread) {
      std::int64_t& own = first[static_cast<std::size_t>(thread)];
      if (own >= 0) return;
      own = task;
      ++started;
      while (started < 3) std::this_thread::yield();
    });
    EXPECT_THAT(first, ::testing::ElementsAre(0, 3, 5));
  }
}

TEST(ThreadPool, TakesOverTheLastTasksOfABusyThread) {
  ThreadPool pool(2);
  std::vector<std::int64_t> others;  // tasks of thread 1
  std::atomic<bool> busy = false;    // thread 0 runs its first task
  std::atomic<int> count = 0;
  pool.run(6, [&](std::int64_t task, int thread) {
    if (thread == 0) {
      busy = true;
      while (count < 5) std::this_thread::yield();
    } else {
      while (!busy) std::this_thread::yield();
      others.push_back(task);
      ++count;
    }
  });
  EXPECT_THAT(others, ::testing::ElementsAre(3, 4, 5, 2, 1));
}

// The address space holds the stacks of some threads only.
TEST(ThreadPool, SaysThatAThreadCannotStart) {
  const testing::LimitedMemory limited;
  try {
    const ThreadPool pool(1000);
    ADD_FAILURE() << "1000 threads have started";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kMemory);
    EXPECT_THAT(failure.what(), ::testing::ContainsRegex("cannot start thread [0-9]+ of 1000: "));
  }
}

TEST(ThreadPool, GivesConcurrentTasksDifferentThreadIndices) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes = 0;
  pool.run(500, [&](std::int64_t, int thread) {
    if (inside[static_cast<std::size_t>(thread)].fetch_add(1) != 0) clashes++;
    inside[static_cast<std::size_t>(thread)].fetch_sub(1);
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadPool, CoversARangeWithoutGapOrOverlap) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> touched(1001);
  pool.for_ranges(1001, 64, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) touched[static_cast<std::size_t>(i)]++;
  });
  for (const auto& count : touched) EXPECT_EQ(count, 1);
}

// In a thread of its own, so that other tests keep their CPUs.
TEST(ThreadPool, BindsItsThreadsButNotTheCaller) {
  std::thread([] {
    const std::vector<int> before = host::thread_affinity();
    const int last = before.back();
    ThreadPool pool(2, {before.front(), last});
    std::atomic<int> inside = 0;
    std::vector<int> affinity[2];
    // Neither task ends before the other one has begun, so each has its thread.
    pool.run(2, [&](std::int64_t, int thread) {
      affinity[thread] = host::thread_affinity();
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
    EXPECT_EQ(affinity[0], before);
    EXPECT_EQ(affinity[1], std::vector<int>{last});
  }).join();
}

TEST(ThreadPool, DoesNotBindWithAnotherNumberOfCpus) {
  const std::vector<int> before = host::thread_affinity();
  ThreadPool pool(2, {before.front()});
  pool.run(20, [&](std::int64_t, int) { EXPECT_EQ(host::thread_affinity(), before); });
}

TEST(ThreadPool, RunsManyShortJobs) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> sum = 0;
  for (int job = 0; job < 20000; ++job)
    pool.run(2, [&](std::int64_t task, int) { sum += task + 1; });
  EXPECT_EQ(sum, 20000 * 3);
}

// Threads sleep after some 50 us without work. Nothing outside shows when they do, so the pauses
// are far longer.
TEST(ThreadPool, WakesItsThreadsAfterTheySlept) {
  ThreadPool pool(3);
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> started = 0;
    // Each task waits for the other two, so all threads must take one.
    pool.run(3, [&](std::int64_t, int) {
      ++started;
      while (started < 3) std::this_thread::yield();
    });
    EXPECT_EQ(started, 3);
  }
}

TEST(ThreadPool, WaitsForATaskThatOutlastsItsPolling) {
  ThreadPool pool(2);
  for (int job = 0; job < 20; ++job) {
    std::atomic<int> started = 0;
    std::atomic<int> finished = 0;
    pool.run(2, [&](std::int64_t, int thread) {
      ++started;
      while (started < 2) std::this_thread::yield();
      if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++finished;
    });
    EXPECT_EQ(finished, 2);
  }
}

}  // namespace
}  // namespace tilewright::runtime
