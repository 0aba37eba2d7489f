#include "worker/bench/slowed_transport.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include "common/base/clock.h"

namespace tilewright::bench {
namespace {

// Shorter sleeps would mostly measure the kernel's timer, which wakes a thread some 50 us late.
constexpr double kShortestSleep = 200e-6;
// A sleep that was longer than owed shortens the next ones, but a stall of the machine by no more
// than this.
constexpr double kMostCredit = 1e-3;

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

void SlowedTransport::slow_down() {
  const double used = thread_cpu_seconds();
  owed_ += (used - cpu_seconds_) * (factor_ - 1);
  cpu_seconds_ = used;
  if (owed_ < kShortestSleep) return;
  const MonotonicTime begin = monotonic_now();
  std::this_thread::sleep_for(std::chrono::duration<double>(owed_));
  owed_ -= in_seconds(monotonic_now() - begin);
  owed_ = std::max(owed_, -kMostCredit);
}

}  // namespace tilewright::bench
