#include "common/json/timestamp.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>

namespace tilewright {

std::optional<WallTime> parse_timestamp(std::string_view text) {
  // YYYY-MM-DDTHH:MM:SS, an optional fraction, then Z or an offset.
  std::array<int, 6> parts{};
  constexpr std::array<std::size_t, 6> kStarts = {0, 5, 8, 11, 14, 17};
  constexpr std::array<std::size_t, 6> kLengths = {4, 2, 2, 2, 2, 2};
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (text.size() <= kShape.size() || text.size() > 40) return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == '0' ? !digit : text[i] != kShape[i]) return std::nullopt;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::from_chars(text.data() + kStarts[i], text.data() + kStarts[i] + kLengths[i], parts[i]);
  }
  using namespace std::chrono;
  // WallTime counts nanoseconds in 64 bits, which reach to 2262. The margin is for sums.
  if (parts[0] < 1970 || parts[0] > 2199) return std::nullopt;
  const year_month_day day{year(parts[0]), month(static_cast<unsigned>(parts[1])),
                           std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!day.ok() || parts[3] > 23 || parts[4] > 59 || parts[5] > 60) return std::nullopt;
  std::string_view rest = text.substr(kShape.size());
  if (rest.starts_with('.')) {
    const std::size_t end = rest.find_first_not_of("0123456789", 1);
    if (end == std::string_view::npos || end == 1) return std::nullopt;
    rest.remove_prefix(end);
  }
  minutes offset{0};
  if (rest != "Z") {
    int hour = 0;
    int minute = 0;
    if (rest.size() != 6 || (rest[0] != '+' && rest[0] != '-') || rest[3] != ':') {
      return std::nullopt;
    }
    const auto first = std::from_chars(rest.data() + 1, rest.data() + 3, hour);
    const auto second = std::from_chars(rest.data() + 4, rest.data() + 6, minute);
    if (first.ptr != rest.data() + 3 || second.ptr != rest.data() + 6) return std::nullopt;
    offset = minutes(hour * 60 + minute) * (rest[0] == '-' ? -1 : 1);
  }
  return WallTime(sys_days(day) + hours(parts[3]) + minutes(parts[4]) + seconds(parts[5]) - offset);
}

std::string to_rfc3339(WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

}  // namespace tilewright
