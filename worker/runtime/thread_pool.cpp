#include "worker/runtime/thread_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>

#include "common/base/result.h"
#include "common/host/binding.h"
#include "worker/runtime/float_mode.h"

namespace tilewright::runtime {
namespace {

// A step runs hundreds of jobs with short gaps between them, so threads poll before they sleep. A
// longer time would take CPU time from other processes on shared cores.
constexpr std::chrono::microseconds kPollTime{50};
// Polls between two readings of the clock: about 0.5 us with the longest PAUSE (140 cycles).
constexpr int kPollsPerTime = 16;
constexpr int kAnyCpu = -1;

// Polls condition() for kPollTime; returns whether it became true.
template <typename Condition>
bool poll(Condition&& condition) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point end{};
  for (;;) {
    for (int i = 0; i < kPollsPerTime; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
    const Clock::time_point now = Clock::now();
    if (end == Clock::time_point{}) end = now + kPollTime;
    if (now >= end) return false;
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus) {
  flush_denormals();
  const bool bind = cpus.size() == static_cast<std::size_t>(threads);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      const int cpu = bind ? cpus[static_cast<std::size_t>(thread)] : kAnyCpu;
      workers_.emplace_back([this, thread, cpu] {
        // Runs unbound if the kernel refuses.
        if (cpu != kAnyCpu) static_cast<void>(host::bind_thread({cpu}));
        worker_loop(thread);
      });
    }
  } catch (const std::system_error& error) {
    const int started = size();
    stop();
    throw Failure(ExitCode::kMemory, fmt::format("cannot start thread {} of {}: {}", started + 1,
                                                 threads, error.code().message()));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// A job ends when each of its tasks is finished, so its fields and its body outlive every claimed
// task. A thread that claims too late gets a number below 1 and does not use them, or a task of the
// next job: the claim reads what the store of `unclaimed_` released.
std::int64_t ThreadPool::run_tasks(int thread) {
  std::int64_t count = 0;
  while (unclaimed_.load(std::memory_order_relaxed) > 0) {
    const std::int64_t left = unclaimed_.fetch_sub(1, std::memory_order_acquire);
    if (left <= 0) break;
    job_.call(job_.object, tasks_ - left, thread);
    ++count;
  }
  return count;
}

// The pairs (unclaimed_, sleeping_) and (finished_, awaited_) are sequentially consistent: one side
// writes the first and reads the second, the other side writes the second and reads the first, so
// at least one of them sees the other's write, and no thread sleeps through its wake-up.
void ThreadPool::dispatch(std::int64_t tasks, Job job) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) job.call(job.object, task, 0);
    return;
  }
  job_ = job;
  tasks_ = tasks;
  finished_.store(0, std::memory_order_relaxed);
  unclaimed_.store(tasks);
  if (sleeping_.load() > 0) {
    // A thread between its check of unclaimed_ and its wait holds the mutex.
    { const std::lock_guard lock(mutex_); }
    start_.notify_all();
  }
  const std::int64_t others = tasks - run_tasks(0);
  const auto done = [&] { return finished_.load() == others; };
  if (poll(done)) return;
  std::unique_lock lock(mutex_);
  awaited_.store(true);
  done_.wait(lock, done);
  awaited_.store(false);
}

void ThreadPool::worker_loop(int thread) {
  flush_denormals();
  const auto has_tasks = [this] { return unclaimed_.load() > 0; };
  for (;;) {
    if (!poll(has_tasks)) {
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      start_.wait(lock, [&] { return stop_ || has_tasks(); });
      sleeping_.fetch_sub(1);
      if (stop_) return;
    }
    const std::int64_t count = run_tasks(thread);
    if (count == 0) continue;
    finished_.fetch_add(count);
    if (awaited_.load()) {
      { const std::lock_guard lock(mutex_); }
      done_.notify_one();
    }
  }
}

}  // namespace tilewright::runtime
