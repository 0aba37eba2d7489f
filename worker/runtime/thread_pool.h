// Threads that share the work of one process. Work is cut into tasks that do not depend on each
// other, so which thread takes which task never changes a result.
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
  // `threads` counts the caller: 1 makes no further thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks), threads taking the next free task;
  // thread in [0, size()) names a scratch slot that no other running task uses. Returns when all
  // are done. Not reentrant, and to be called from one thread at a time. body may not throw.
  template <typename Body>
  void run(std::int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    dispatch(tasks, {[](void* object, std::int64_t task, int thread) {
                       (*static_cast<Plain*>(object))(task, thread);
                     },
                     const_cast<void*>(static_cast<const void*>(&body))});
  }

  // Calls body(begin, end) for consecutive ranges that cover [0, count), each a multiple of
  // `grain` long except the last.
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
  void take_tasks(int thread);
  void serve(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  Job job_;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint64_t> generation_{0};  // of the job; raised under mutex_, spun upon outside
  std::atomic<int> busy_{0};                  // pool threads that have not finished the job
  bool stop_ = false;
};

}  // namespace tilewright::runtime
