// RFC 3339 timestamps, the format of Kubernetes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"

namespace tilewright {

// nullopt if `text` is not a timestamp such as 2026-01-31T23:59:59Z, or of a year before 1970 or
// after 2199: differences and sums of two times fit WallTime. Fractions of a second are dropped,
// offsets such as +01:30 are applied.
std::optional<WallTime> parse_timestamp(std::string_view text);

// UTC without fractions of a second: 2026-01-31T23:59:59Z.
std::string to_rfc3339(WallTime time);

}  // namespace tilewright
