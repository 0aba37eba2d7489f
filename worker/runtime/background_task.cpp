#include "worker/runtime/background_task.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "common/base/blocked_signals.h"
#include "common/base/check.h"

namespace tilewright::runtime {
namespace {

// Above that of the process. On a core with a thread of the pool the task gets a tenth of the time:
// one level of niceness is a factor of about 1.25.
constexpr int kNiceness = 10;
constexpr int kLowestPriority = 19;

// Only advice: a kernel that refuses it changes the speed.
void lower_priority() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  const auto thread = static_cast<id_t>(gettid());
  const int niceness = std::min(getpriority(PRIO_PROCESS, thread) + kNiceness, kLowestPriority);
  static_cast<void>(setpriority(PRIO_PROCESS, thread, niceness));
}

}  // namespace

// Shared with the thread, which may outlive the object.
struct BackgroundTask::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr failure;
};

BackgroundTask::BackgroundTask() = default;

BackgroundTask::~BackgroundTask() {
  if (thread_.joinable()) thread_.detach();
}

void BackgroundTask::start(std::function<void()> task) {
  TW_CHECK(!active(), "a background task is started while another one is active");
  auto state = std::make_shared<State>();
  {
    const BlockedSignals blocked;
    thread_ = std::thread([state, task = std::move(task)]() mutable {
      lower_priority();
      std::exception_ptr failure;
      try {
        task();
      } catch (...) {
        failure = std::current_exception();
      }
      task = nullptr;  // what it owns ends before wait() returns
      const std::lock_guard lock(state->mutex);
      state->failure = std::move(failure);
      state->ended = true;
      state->changed.notify_all();
    });
  }
  state_ = std::move(state);
}

bool BackgroundTask::wait(std::chrono::nanoseconds timeout) {
  if (!active()) return true;
  {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, timeout, [&] { return state_->ended; })) return false;
  }
  thread_.join();
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (state->failure) std::rethrow_exception(state->failure);
  return true;
}

}  // namespace tilewright::runtime
