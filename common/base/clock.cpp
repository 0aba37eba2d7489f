#include "common/base/clock.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

namespace tilewright {

std::string to_rfc3339(WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

std::string to_words(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::lround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace tilewright
