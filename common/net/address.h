// Addresses in text form: "host:port", "10.0.0.1:29500", "[fd00::1]:29500".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::net {

struct Address {
  std::string host;  // a name or a numeric address, without brackets; empty: all local addresses
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// "[host]:port" if the host contains a colon, else "host:port".
std::string to_string(const Address& address);

// What counts as one source of connections: an IPv4 address, or the /64 network of an IPv6 address,
// in which a host may take any number of addresses. Any other text is returned unchanged.
std::string source_network(const std::string& numeric_host);

// Errors carry kUsage. An IPv6 host must be in brackets; the port is 0 to 65535.
Result<Address> parse_address(std::string_view text);

}  // namespace tilewright::net
