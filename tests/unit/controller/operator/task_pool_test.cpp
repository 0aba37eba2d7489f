// Tests of TaskPool: all tasks run once and before run_all() returns, with any number of callers
// and threads.
#include "controller/operator/task_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>

namespace tilewright::controller {
namespace {

using Tasks = std::vector<std::function<void()>>;

// Calls run_all() repeatedly from several threads, each with its own tasks.
void run_from_many(int threads, int callers, int tasks_each, int rounds) {
  TaskPool pool(threads);
  std::latch together(callers);
  std::vector<std::thread> all;
  for (int caller = 0; caller < callers; ++caller) {
    all.emplace_back([&] {
      together.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        // Written without a lock: run_all() must make the tasks' writes visible to the caller.
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

TEST(TaskPool, ServesConcurrentCallers) { run_from_many(4, 8, 7, 100); }

TEST(TaskPool, DoesNotDeadlockWithFewerThreadsThanCallers) { run_from_many(1, 16, 5, 50); }

TEST(TaskPool, RunsAllTasksInTheCallersWithoutThreads) { run_from_many(0, 4, 5, 50); }

TEST(TaskPool, ReturnsAtOnceWithoutTasks) {
  TaskPool pool(2);
  pool.run_all({});
}

TEST(TaskPool, RunsTasksConcurrently) {
  // Each task waits for all others, so sequential execution would deadlock.
  constexpr int kTasks = 5;
  TaskPool pool(kTasks - 1);
  std::latch all_begun(kTasks);
  Tasks tasks;
  for (int i = 0; i < kTasks; ++i) tasks.emplace_back([&] { all_begun.arrive_and_wait(); });
  pool.run_all(tasks);
  EXPECT_TRUE(all_begun.try_wait());
}

TEST(TaskPool, ThrowsAnExceptionOfATaskWhenAllTasksAreDone) {
  for (const int threads : {0, 3}) {
    TaskPool pool(threads);
    std::atomic<int> done = 0;
    Tasks tasks(20, [&] { ++done; });
    tasks[7] = [] { throw std::runtime_error("a bug"); };
    try {
      pool.run_all(tasks);
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "a bug");
    }
    EXPECT_EQ(done, 19);
    tasks[7] = [] {};
    pool.run_all(tasks);
  }
}

TEST(TaskPool, RunsNestedTasks) {
  TaskPool pool(1);
  std::atomic<int> inner = 0;
  const Tasks inner_tasks(3, [&] { ++inner; });
  pool.run_all(Tasks(3, [&] { pool.run_all(inner_tasks); }));
  EXPECT_EQ(inner, 9);
}

}  // namespace
}  // namespace tilewright::controller
