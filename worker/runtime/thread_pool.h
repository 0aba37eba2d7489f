// A pool of threads that runs independent tasks. Tasks do not depend on each other, so the
// assignment of tasks to threads does not change results.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace tilewright::runtime {

class ThreadPool {
 public:
  // `threads` includes the calling thread, which must be the one that constructs the pool: 1 starts
  // no thread. Sets the floating-point mode of all of them (float_mode.h). Throws Failure(kMemory)
  // if the system refuses a thread.
  // `cpus`: if it has one CPU for each thread, thread i runs on cpus[i] only. The calling thread is
  // not bound, because threads that it starts later would inherit its mask; the CPU of thread 0 is
  // the one that the others leave to it.
  explicit ThreadPool(int threads, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks), at most 2^32 - 1. Each thread has an
  // equal share of consecutive tasks and then takes over tasks of other threads, so that jobs over
  // the same rows find them in the caches of the core that wrote them. `thread` in [0, size())
  // differs between tasks that run at the same time, so it can index scratch. Returns when all
  // tasks are done. Not reentrant; only one thread may call it at a time. body must not throw.
  template <typename Body>
  void run(std::int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    dispatch(tasks, {[](void* object, std::int64_t task, int thread) {
                       (*static_cast<Plain*>(object))(task, thread);
                     },
                     const_cast<void*>(static_cast<const void*>(&body))});
  }

  // Calls body(begin, end) for consecutive ranges of `grain` elements, the last one shorter, that
  // cover [0, count).
  template <typename Body>
  void for_ranges(std::int64_t count, std::int64_t grain, Body&& body) {
    const std::int64_t tasks = (count + grain - 1) / grain;
    run(tasks, [&](std::int64_t task, int) {
      const std::int64_t begin = task * grain;
      body(begin, begin + grain < count ? begin + grain : count);
    });
  }

 private:
  struct Job {
    void (*call)(void*, std::int64_t, int) = nullptr;
    void* object = nullptr;
  };
  // Threads poll or write these words, so each has its cache line (two: CPUs fetch lines in pairs).
  static constexpr std::size_t kAlignment = 128;

  // The tasks of a thread that no thread has claimed: [begin, end).
  struct alignas(kAlignment) Share {
    std::atomic<std::uint64_t> unclaimed{0};  // begin + 2^32 end
  };

  void dispatch(std::int64_t tasks, Job job);
  void stop();
  // Runs unclaimed tasks until there is none; returns how many it ran.
  std::int64_t run_tasks(int thread);
  void worker_loop(int thread);

  std::vector<Share> shares_;  // one per thread
  std::vector<std::thread> workers_;
  Job job_;  // written between jobs; read by a thread after it claimed a task of the job
  alignas(kAlignment) std::atomic<std::uint64_t> jobs_{0};  // jobs started so far
  // Tasks that pool threads have finished.
  alignas(kAlignment) std::atomic<std::int64_t> finished_{0};
  alignas(kAlignment) std::atomic<int> sleeping_{0};  // pool threads that wait for start_
  std::atomic<bool> awaited_{false};                  // the caller waits for done_
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  bool stop_ = false;  // guarded by mutex_
};

}  // namespace tilewright::runtime
