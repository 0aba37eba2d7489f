#include "common/base/clock.h"

#include <fmt/format.h>

#include <cmath>

namespace tilewright {
namespace {

class SystemClock final : public Clock {
 public:
  MonotonicTime now() const override { return monotonic_now(); }
  void subscribe(const void*, std::function<void()>) override {}
  void unsubscribe(const void*) override {}
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;  // stateless
  return clock;
}

std::string format_duration(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::lround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace tilewright
