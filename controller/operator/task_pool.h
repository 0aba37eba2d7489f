// A thread pool for concurrent API requests, for example to create the pods of a job.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewright::controller {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Returns when all tasks are done. The calling thread runs tasks too, so concurrent calls cannot
  // deadlock. Then throws the first exception of a task, if there was one.
  void run_all(const std::vector<std::function<void()>>& tasks);

 private:
  struct Batch;
  void work();

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Batch*> batches_;  // batches with tasks that have not started
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tilewright::controller
