#include "common/net/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <span>

#include "common/base/strings.h"

namespace tilewright::net {

std::string to_string(const Address& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address.host, brackets ? "]" : "",
                     address.port);
}

std::string source_network(const std::string& numeric_host) {
  in6_addr address{};
  const std::string without_zone = numeric_host.substr(0, numeric_host.find('%'));
  if (inet_pton(AF_INET6, without_zone.c_str(), &address) != 1) return numeric_host;
  std::ranges::fill(std::span(address.s6_addr).last(8), std::uint8_t{0});
  char network[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &address, network, sizeof network);
  return fmt::format("{}/64", network);
}

Result<Address> parse_address(std::string_view text) {
  const auto refuse = [text](const char* why) {
    return Error{ExitCode::kUsage,
                 fmt::format("address \"{}\": {}; expected host:port or [v6]:port", text, why)};
  };
  std::string_view host, port;
  if (!text.empty() && text.front() == '[') {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return refuse("\"[\" without \"]\"");
    host = text.substr(1, end - 1);
    if (host.find(':') == std::string_view::npos) return refuse("no IPv6 address in brackets");
    if (text.substr(end + 1, 1) != ":") return refuse("no port after \"]\"");
    port = text.substr(end + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos) return refuse("no port");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (port.find(':') != std::string_view::npos) return refuse("more than one colon");
  }
  if (text.find_first_of(std::string_view(" \t\r\n\0", 5)) != std::string_view::npos) {
    return refuse("holds a space or a control character");
  }
  const auto number = parse_number<std::uint16_t>(port);
  if (!number) return refuse("the port is not a number from 0 to 65535");
  return Address{std::string(host), *number};
}

}  // namespace tilewright::net
