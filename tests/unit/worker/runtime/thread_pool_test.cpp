#include "worker/runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

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

TEST(ThreadPool, RunsManyShortJobs) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> sum = 0;
  for (int job = 0; job < 20000; ++job)
    pool.run(2, [&](std::int64_t task, int) { sum += task + 1; });
  EXPECT_EQ(sum, 20000 * 3);
}

}  // namespace
}  // namespace tilewright::runtime
