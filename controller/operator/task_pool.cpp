#include "controller/operator/task_pool.h"

#include <algorithm>
#include <exception>

namespace tilewright::controller {

struct TaskPool::Batch {
  const std::vector<std::function<void()>>& tasks;
  std::size_t next = 0;  // first task that has not started
  std::size_t done = 0;
  std::exception_ptr thrown = nullptr;  // by the first task that threw
  std::condition_variable all_done{};

  // Runs a task that has started. `lock` is held before and after, but not during the task.
  void run(std::size_t task, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    std::exception_ptr failure;
    try {
      tasks[task]();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (!thrown) thrown = failure;
    ++done;
  }
};

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || !batches_.empty(); });
    if (batches_.empty()) return;
    Batch& batch = *batches_.front();
    const std::size_t task = batch.next++;
    if (batch.next == batch.tasks.size()) batches_.pop_front();
    batch.run(task, lock);
    if (batch.done == batch.tasks.size()) batch.all_done.notify_one();
  }
}

void TaskPool::run_all(const std::vector<std::function<void()>>& tasks) {
  if (tasks.empty()) return;
  Batch batch{tasks};
  std::unique_lock lock(mutex_);
  if (tasks.size() > 1) {
    batches_.push_back(&batch);
    // The caller runs one task itself.
    for (std::size_t i = 1; i < tasks.size(); ++i) work_.notify_one();
  }
  while (batch.next < tasks.size()) {
    const std::size_t task = batch.next++;
    if (batch.next == tasks.size()) std::erase(batches_, &batch);
    batch.run(task, lock);
  }
  batch.all_done.wait(lock, [&] { return batch.done == tasks.size(); });
  if (batch.thrown) std::rethrow_exception(batch.thrown);
}

}  // namespace tilewright::controller
