#include "worker/runtime/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/host/binding.h"
#include "worker/runtime/float_mode.h"

namespace tilewright::runtime {
namespace {

// A step runs hundreds of jobs with short gaps between them, so threads poll before they sleep. A
// longer time would take CPU time from other processes on shared cores.
constexpr std::chrono::microseconds kPollTime{50};
// Polls between two readings of the clock: about 0.5 us with the longest PAUSE (140 cycles).
constexpr int kPollsPerTime = 16;
constexpr int kAnyCpu = -1;

// Polls condition() for kPollTime; returns whether it became true.
template <typename Condition>
bool poll(Condition&& condition) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point end{};
  for (;;) {
    for (int i = 0; i < kPollsPerTime; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
    const Clock::time_point now = Clock::now();
    if (end == Clock::time_point{}) end = now + kPollTime;
    if (now >= end) return false;
  }
}

std::uint64_t packed(std::uint64_t begin, std::uint64_t end) { return begin | end << 32; }

// Claims the first task of [begin, end), or the last one. Returns whether there was one.
bool claim(std::atomic<std::uint64_t>& unclaimed, bool first, std::int64_t& task) {
  std::uint64_t found = unclaimed.load(std::memory_order_relaxed);
  std::uint64_t left;
  do {
    const std::uint64_t begin = found & 0xffffffffu;
    const std::uint64_t end = found >> 32;
    if (begin >= end) return false;
    task = static_cast<std::int64_t>(first ? begin : end - 1);
    left = first ? packed(begin + 1, end) : packed(begin, end - 1);
  } while (!unclaimed.compare_exchange_weak(found, left, std::memory_order_acquire,
                                            std::memory_order_relaxed));
  return true;
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus)
    : shares_(static_cast<std::size_t>(std::max(threads, 1))) {
  flush_denormals();
  const bool bind = cpus.size() == static_cast<std::size_t>(threads);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      const int cpu = bind ? cpus[static_cast<std::size_t>(thread)] : kAnyCpu;
      workers_.emplace_back([this, thread, cpu] {
        // Runs unbound if the kernel refuses.
        if (cpu != kAnyCpu) static_cast<void>(host::bind_thread({cpu}));
        worker_loop(thread);
      });
    }
  } catch (const std::system_error& error) {
    const int started = size();
    stop();
    throw Failure(ExitCode::kMemory, fmt::format("cannot start thread {} of {}: {}", started + 1,
                                                 threads, error.code().message()));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// A job ends when each of its tasks is finished, so `job_` and its body outlive every claimed task.
// A thread that comes too late finds no task, or one of the next job, whose `job_` it sees: the
// claim reads what the store of the share released.
std::int64_t ThreadPool::run_tasks(int thread) {
  std::int64_t count = 0;
  std::size_t share = static_cast<std::size_t>(thread);
  for (std::size_t tried = 0; tried < shares_.size(); ++tried) {
    // The last task of another thread's share is the one that the other thread would take last.
    for (std::int64_t task = 0; claim(shares_[share].unclaimed, tried == 0, task); ++count) {
      job_.call(job_.object, task, thread);
    }
    if (++share == shares_.size()) share = 0;
  }
  return count;
}

// The pairs (jobs_, sleeping_) and (finished_, awaited_) are sequentially consistent: one side
// writes the first and reads the second, the other side writes the second and reads the first, so
// at least one of them sees the other's write, and no thread sleeps through its wake-up.
void ThreadPool::dispatch(std::int64_t tasks, Job job) {
  if (tasks <= 0) return;
  TW_CHECK(tasks < std::int64_t{1} << 32, "found {} tasks, expected fewer than 2^32", tasks);
  if (workers_.empty() || tasks == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) job.call(job.object, task, 0);
    return;
  }
  job_ = job;
  finished_.store(0, std::memory_order_relaxed);
  const std::uint64_t threads = shares_.size();
  std::uint64_t begin = 0;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    // Rounded up, so that the first thread, which need not wake, has a task in any case.
    const std::uint64_t end =
        ((thread + 1) * static_cast<std::uint64_t>(tasks) + threads - 1) / threads;
    shares_[thread].unclaimed.store(packed(begin, end), std::memory_order_release);
    begin = end;
  }
  jobs_.fetch_add(1);
  if (sleeping_.load() > 0) {
    // A thread between its check of jobs_ and its wait holds the mutex.
    { const std::lock_guard lock(mutex_); }
    start_.notify_all();
  }
  const std::int64_t others = tasks - run_tasks(0);
  const auto done = [&] { return finished_.load() == others; };
  if (poll(done)) return;
  std::unique_lock lock(mutex_);
  awaited_.store(true);
  done_.wait(lock, done);
  awaited_.store(false);
}

void ThreadPool::worker_loop(int thread) {
  flush_denormals();
  std::uint64_t seen = 0;
  const auto has_job = [&] { return jobs_.load() != seen; };
  for (;;) {
    if (!poll(has_job)) {
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1);
      start_.wait(lock, [&] { return stop_ || has_job(); });
      sleeping_.fetch_sub(1);
      if (stop_) return;
    }
    seen = jobs_.load();
    const std::int64_t count = run_tasks(thread);
    if (count == 0) continue;
    finished_.fetch_add(count);
    if (awaited_.load()) {
      { const std::lock_guard lock(mutex_); }
      done_.notify_one();
    }
  }
}

}  // namespace tilewright::runtime
