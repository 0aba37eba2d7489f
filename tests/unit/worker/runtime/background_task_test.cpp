// Tests tasks that run beside the thread that starts them.
#include "worker/runtime/background_task.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <stdexcept>

namespace tilewright::runtime {
namespace {

using namespace std::chrono_literals;

constexpr auto kForever = 60s;

TEST(BackgroundTask, RunsBesideItsCallerOneAfterAnother) {
  BackgroundTask task;
  EXPECT_FALSE(task.active());
  EXPECT_TRUE(task.wait(0s));
  for (int round = 0; round < 3; ++round) {
    std::promise<void> go;
    bool done = false;
    task.start([&] {
      go.get_future().wait();
      done = true;
    });
    EXPECT_TRUE(task.active());
    EXPECT_FALSE(task.wait(1ms));
    EXPECT_TRUE(task.active());
    go.set_value();
    EXPECT_TRUE(task.wait(kForever));
    EXPECT_TRUE(done);
    EXPECT_FALSE(task.active());
  }
}

TEST(BackgroundTask, ThrowsWhatTheTaskHasThrownAndCanStartAgain) {
  BackgroundTask task;
  task.start([] { throw std::runtime_error("full"); });
  EXPECT_THROW(task.wait(kForever), std::runtime_error);
  EXPECT_FALSE(task.active());
  bool done = false;
  task.start([&] { done = true; });
  EXPECT_TRUE(task.wait(kForever));
  EXPECT_TRUE(done);
}

TEST(BackgroundTask, HasALowPriorityAndNoSignals) {
  BackgroundTask task;
  int niceness = 0;
  int policy = -1;
  sigset_t blocked;
  task.start([&] {
    niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    policy = sched_getscheduler(0);
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  });
  ASSERT_TRUE(task.wait(kForever));
  const int own_niceness = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  EXPECT_EQ(niceness, std::min(own_niceness + 10, 19));
  EXPECT_EQ(policy, SCHED_BATCH);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGTERM), 0);
}

// What the task owns has ended when wait() returns, and lives on in a task that is left behind.
TEST(BackgroundTask, OwnsWhatItUses) {
  auto kept = std::make_shared<int>(1);
  {
    BackgroundTask task;
    task.start([kept] {});
    ASSERT_TRUE(task.wait(kForever));
    EXPECT_EQ(kept.use_count(), 1);
  }
  std::promise<void> go;
  auto release = std::make_shared<std::shared_future<void>>(go.get_future());
  auto result = std::make_shared<std::promise<int>>();
  std::future<int> value = result->get_future();
  {
    BackgroundTask task;
    task.start([release, result, kept = std::move(kept)] {
      release->wait();
      result->set_value(*kept);
    });
    EXPECT_FALSE(task.wait(0s));
  }
  go.set_value();
  EXPECT_EQ(value.get(), 1);
}

}  // namespace
}  // namespace tilewright::runtime
