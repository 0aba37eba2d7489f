// A pool of threads that runs independent tasks. Tasks do not depend on each other, so the
// assignment of tasks to threads does not change results.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace tilewright::runtime {

class ThreadPool {
 public:
  // `threads` includes the calling thread, which must be the one that constructs the pool: 1 starts
  // no thread. Sets the floating-point mode of all of them (float_mode.h).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks); each thread takes the next free task.
  // `thread` in [0, size()) differs between tasks that run at the same time, so it can index
  // scratch. Returns when all tasks are done. Not reentrant; only one thread may call it at a time.
  // body must not throw.
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
  void dispatch(std::int64_t tasks, Job job);
  void run_tasks(int thread);
  void worker_loop(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  Job job_;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint64_t> generation_{
      0};                     // number of the job; written under mutex_, polled without it
  std::atomic<int> busy_{0};  // pool threads that have not finished the job
  bool stop_ = false;
};

}  // namespace tilewright::runtime
