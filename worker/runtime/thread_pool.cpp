#include "worker/runtime/thread_pool.h"

namespace tilewright::runtime {
namespace {

// A step is thousands of short jobs: spin about 20 microseconds for the next before going to sleep.
// Longer would take the CPU from a neighbour process where cores are shared.
constexpr int kSpins = 2000;

inline void relax() { __builtin_ia32_pause(); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { serve(thread); });
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

void ThreadPool::take_tasks(int thread) {
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
  take_tasks(0);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (busy_.load(std::memory_order_acquire) == 0) return;
    relax();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::serve(int thread) {
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
    take_tasks(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(mutex_);
      done_.notify_one();
    }
  }
}

}  // namespace tilewright::runtime
