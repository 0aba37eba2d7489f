// All tasks run once and before run_all() returns, however many callers there are and however few
// threads.
#include "controller/manager/task_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>

namespace tilewright::manager {
namespace {

using Tasks = std::vector<std::function<void()>>;

// Calls run_all() from so many threads, each with so many tasks of its own, several times.
void run_from_many(int threads, int callers, int tasks_each, int rounds) {
  TaskPool pool(threads);
  std::latch together(callers);
  std::vector<std::thread> all;
  for (int caller = 0; caller < callers; ++caller) {
    all.emplace_back([&] {
      together.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        // Written without a lock: what the tasks have done must be seen when run_all() returns.
        std::vector<int> runs(static_cast<std::size_t>(tasks_each), 0);
        Tasks tasks;
        for (int& count : runs) tasks.emplace_back([&count] { ++count; });
        pool.run_all(tasks);
        for (const int count : runs) ASSERT_EQ(count, 1);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
}

TEST(TaskPool, RunsEveryTaskOnce) { run_from_many(4, 1, 100, 20); }

TEST(TaskPool, ServesManyCallersAtOnce) { run_from_many(4, 8, 7, 100); }

TEST(TaskPool, DoesNotWaitForItselfWithFewerThreadsThanCallers) { run_from_many(1, 16, 5, 50); }

TEST(TaskPool, LetsTheCallersDoAllWithoutThreads) { run_from_many(0, 4, 5, 50); }

TEST(TaskPool, HasNothingToDoForNoTasks) {
  TaskPool pool(2);
  pool.run_all({});
}

TEST(TaskPool, RunsTasksSideBySide) {
  // Each waits for all others: one after the other they would never end.
  constexpr int kTasks = 5;
  TaskPool pool(kTasks - 1);
  std::latch all_begun(kTasks);
  Tasks tasks;
  for (int i = 0; i < kTasks; ++i) tasks.emplace_back([&] { all_begun.arrive_and_wait(); });
  pool.run_all(tasks);
  EXPECT_TRUE(all_begun.try_wait());
}

TEST(TaskPool, RunsTasksOfATask) {
  TaskPool pool(1);
  std::atomic<int> inner = 0;
  const Tasks inner_tasks(3, [&] { ++inner; });
  pool.run_all(Tasks(3, [&] { pool.run_all(inner_tasks); }));
  EXPECT_EQ(inner, 9);
}

}  // namespace
}  // namespace tilewright::manager
