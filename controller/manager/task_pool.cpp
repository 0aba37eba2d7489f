#include "controller/manager/task_pool.h"

#include <algorithm>

namespace tilewright::manager {

struct TaskPool::Batch {
  const std::vector<std::function<void()>>& tasks;
  std::size_t next = 0;  // the first that nobody has begun
  std::size_t done = 0;
  std::condition_variable all_done{};
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
    lock.unlock();
    batch.tasks[task]();
    lock.lock();
    if (++batch.done == batch.tasks.size()) batch.all_done.notify_one();
  }
}

void TaskPool::run_all(const std::vector<std::function<void()>>& tasks) {
  if (tasks.empty()) return;
  Batch batch{tasks};
  std::unique_lock lock(mutex_);
  if (tasks.size() > 1) {
    batches_.push_back(&batch);
    // One for each that the caller does not do itself.
    for (std::size_t i = 1; i < tasks.size(); ++i) work_.notify_one();
  }
  while (batch.next < tasks.size()) {
    const std::size_t task = batch.next++;
    if (batch.next == tasks.size()) std::erase(batches_, &batch);
    lock.unlock();
    tasks[task]();
    lock.lock();
    ++batch.done;
  }
  batch.all_done.wait(lock, [&] { return batch.done == tasks.size(); });
}

}  // namespace tilewright::manager
