#include "controller/manager/task_pool.h"

#include <algorithm>

namespace tilewright::manager {

struct TaskPool::Batch {
  const std::vector<std::function<void()>>& tasks;
  std::size_t next = 0;  // the first that nobody has begun
  std::size_t done = 0;
};

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !batches_.empty(); });
    if (batches_.empty()) return;
    Batch& batch = *batches_.front();
    const std::size_t task = batch.next++;
    if (batch.next == batch.tasks.size()) batches_.pop_front();
    lock.unlock();
    batch.tasks[task]();
    lock.lock();
    if (++batch.done == batch.tasks.size()) changed_.notify_all();
  }
}

void TaskPool::run_all(const std::vector<std::function<void()>>& tasks) {
  if (tasks.empty()) return;
  Batch batch{tasks};
  std::unique_lock lock(mutex_);
  if (tasks.size() > 1) {
    batches_.push_back(&batch);
    changed_.notify_all();
  }
  while (batch.next < tasks.size()) {
    const std::size_t task = batch.next++;
    if (batch.next == tasks.size()) std::erase(batches_, &batch);
    lock.unlock();
    tasks[task]();
    lock.lock();
    ++batch.done;
  }
  changed_.wait(lock, [&] { return batch.done == tasks.size(); });
}

}  // namespace tilewright::manager
