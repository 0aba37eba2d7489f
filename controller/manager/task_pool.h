// Threads for requests that are made at once: pods of a job are created side by side, however slow
// the API server answers each.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewright::manager {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Returns when all are done. The calling thread does its share, so calls from many threads at
  // once cannot wait for each other. Tasks do not throw.
  void run_all(const std::vector<std::function<void()>>& tasks);

 private:
  struct Batch;
  void work();

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Batch*> batches_;  // that have tasks nobody has begun
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tilewright::manager
