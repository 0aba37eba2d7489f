// Names, addresses, free ports and the temporary directory of this host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/net/wait.h"

namespace tilewright::elastic {

// Whether a host name or address names this host: localhost, its own name (with or without the
// domain), a loopback address or one of its interfaces, also after a look-up. Error: kPeerLost (the
// name does not resolve, or not before the end of the Wait).
Result<bool> is_this_host(const std::string& name, const net::Wait& wait);

// "127.0.0.1", "127.0.1.1", "::1": addresses at which no other host reaches this one.
bool is_loopback(const std::string& numeric_host);

// The addresses of this host that other hosts can reach: of interfaces that are up, without
// loopback and link-local ones, IPv4 first.
std::vector<std::string> reachable_addresses();

// The address of an interface, IPv4 if it has one. Error: kUsage, with the interfaces that exist.
Result<std::string> interface_address(const std::string& name);

// The address of this host on the way to another one. Error: kUsage (the name does not resolve, or
// not before the end of the Wait; no route).
Result<std::string> address_towards(const std::string& host, const net::Wait& wait);

// The first port of [first, last] from which `count` consecutive ports are free on all addresses,
// searched from first + offset. nullopt: none.
std::optional<std::uint16_t> find_free_ports(std::uint16_t first, std::uint16_t last, int count,
                                             int offset = 0);

// TMPDIR, or /tmp. Error: kUsage, if it is no directory.
Result<std::filesystem::path> temporary_directory();

}  // namespace tilewright::elastic
