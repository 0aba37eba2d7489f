// Addresses as people write them: "host:port", "10.0.0.1:29500", "[fd00::1]:29500".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::net {

struct Address {
  std::string host;  // a name or a numeric address, without brackets; empty: every local address
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// "[host]:port" when the host holds a colon, else "host:port".
std::string to_string(const Address& address);

// Errors carry kUsage. An IPv6 host must stand in brackets; the port is 0 to 65535.
Result<Address> parse_address(std::string_view text);

}  // namespace tilewright::net
