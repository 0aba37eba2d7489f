// Kubernetes quantities: 500m, 1.5, 2Gi, 12e6.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::api {

// An amount as the user wrote it and in thousandths, rounded up (a byte is the smallest unit of
// memory, a thousandth of a core that of cpu).
struct Quantity {
  std::string text;
  std::int64_t milli = 0;

  double value() const { return static_cast<double>(milli) / 1000; }
  std::int64_t rounded_up() const { return milli / 1000 + (milli % 1000 > 0 ? 1 : 0); }
  // Equal amounts are equal however written: 1Gi and 1024Mi.
  bool operator==(const Quantity& other) const { return milli == other.milli; }
};

// nullopt when `text` is no quantity, is negative or is too large for 64 bits of thousandths
// (9 PB of memory).
std::optional<Quantity> parse_quantity(std::string_view text);

}  // namespace tilewright::api
