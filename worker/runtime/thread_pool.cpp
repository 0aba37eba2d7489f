#include "worker/runtime/thread_pool.h"

#include "worker/runtime/float_mode.h"

namespace tilewright::runtime {
namespace {

// A step runs thousands of short jobs, so threads spin for about 20 us before they sleep. A longer
// spin would take CPU time from other processes on shared cores.
constexpr int kSpins = 2000;

inline void relax() { __builtin_ia32_pause(); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  flush_denormals();
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { worker_loop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_tasks(int thread) {
  for (;;) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    job_.call(job_.object, task, thread);
  }
}

void ThreadPool::dispatch(std::int64_t tasks, Job job) {
  if (tasks <= 0) return;
  if (workers_.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) job.call(job.object, task, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  run_tasks(0);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (busy_.load(std::memory_order_acquire) == 0) return;
    relax();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::worker_loop(int thread) {
  flush_denormals();
  std::uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation_.load(std::memory_order_acquire) != seen) break;
      relax();
    }
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
    }
    run_tasks(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

}  // namespace tilewright::runtime
