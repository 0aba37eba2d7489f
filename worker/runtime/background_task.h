// Runs a task with a low priority on a thread beside those of the pool.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace tilewright::runtime {

// One task at a time. Not thread-safe: one thread uses the object. A task must own all that it
// uses, because one that hangs (storage that does not answer) is left behind by the destructor.
class BackgroundTask {
 public:
  BackgroundTask();
  // Does not wait for the task.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Not while a task is active. Throws std::system_error if the system refuses a thread.
  void start(std::function<void()> task);
  // A task was started, and wait() has not reported its end.
  bool active() const { return state_ != nullptr; }
  // Waits until the task has ended, at most `timeout`. True: it has ended, or none is active.
  // Throws what the task has thrown.
  bool wait(std::chrono::nanoseconds timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: no task is active
  std::thread thread_;
};

}  // namespace tilewright::runtime
