// Clocks: monotonic time for waits and deadlines, wall time for timestamps.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tilewright {

using Duration = std::chrono::steady_clock::duration;
using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

inline MonotonicTime monotonic_now() { return std::chrono::steady_clock::now(); }
inline WallTime wall_now() { return std::chrono::system_clock::now(); }

// How long a thread waits at a time if no deadline is nearer; then it waits again. Unlike the
// largest Duration it overflows neither in a sum with a time nor in the milliseconds of poll().
inline constexpr Duration kLongestWait = std::chrono::hours(1);

inline double in_seconds(std::chrono::duration<double> duration) { return duration.count(); }

// The clock of components with deadlines. Programs use the system's clock; tests use a clock that
// advances only on request (tests/support/manual_clock.h).
class Clock {
 public:
  Clock() = default;
  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual MonotonicTime now() const = 0;

  // Registers `wake`, which a manual clock calls from any thread after each advance, so that a
  // thread that waits for a deadline can recompute the remaining time. The system's clock never
  // calls it. unsubscribe() returns once no call of `wake` is running.
  virtual void subscribe(const void* owner, std::function<void()> wake) = 0;
  virtual void unsubscribe(const void* owner) = 0;
};

// The system's monotonic clock.
Clock& system_clock();

// "1 h 02 min", "3 min 20 s", "4.5 s": for progress lines.
std::string format_duration(std::chrono::duration<double> duration);

}  // namespace tilewright
