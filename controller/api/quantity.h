// Kubernetes resource quantities: 500m, 1.5, 2Gi, 12e6.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::api {

// An amount as written in the manifest, and in thousandths, rounded up. Thousandths, because the
// smallest unit of cpu is 1m.
struct Quantity {
  std::string text;
  std::int64_t milli = 0;

  std::int64_t rounded_up() const { return milli / 1000 + (milli % 1000 > 0 ? 1 : 0); }
  // Compares the amounts, not the strings: 1Gi equals 1024Mi.
  bool operator==(const Quantity& other) const { return milli == other.milli; }
};

// For a string that is not accepted, what else to say than which form a quantity has: ", above
// zero", "; did you mean 2G or 2Gi?". May be empty.
std::string quantity_hint(std::string_view text);

// nullopt if `text` is not a quantity, is negative, or exceeds 64 bits of thousandths (9 PB).
std::optional<Quantity> parse_quantity(std::string_view text);

}  // namespace tilewright::api
