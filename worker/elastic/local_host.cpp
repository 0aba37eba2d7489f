#include "worker/elastic/local_host.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/strings.h"
#include "common/host/host.h"
#include "common/net/connect.h"
#include "common/net/endpoint.h"

namespace tilewright::elastic {
namespace {

constexpr std::uint16_t kAnyPort = 9;  // address_towards() sends nothing

// Without the zone of a link-local address.
std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string found = text.data();
  return found.substr(0, found.find('%'));
}

struct InterfaceAddress {
  std::string interface;
  unsigned flags = 0;
  int family = 0;
  std::string address;

  bool is_link_local() const { return address.starts_with("fe80:"); }
};

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    result.push_back(
        {one->ifa_name, one->ifa_flags, family,
         numeric(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6))});
  }
  return result;
}

}  // namespace

Result<bool> is_this_host(const std::string& name, const net::Wait& wait) {
  if (name.empty() || name == "localhost") return true;
  const std::string own_name = host::host_name();
  if (name == own_name || name == own_name.substr(0, own_name.find('.'))) return true;
  std::set<std::string> local;
  for (const InterfaceAddress& one : interface_addresses()) local.insert(one.address);
  const auto found = net::resolve({name, kAnyPort}, net::AddressUse::kConnect, wait);
  if (!found.ok()) return found.error();
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const std::string address = numeric(one->ai_addr, one->ai_addrlen);
    if (is_loopback(address) || local.contains(address)) return true;
  }
  return false;
}

bool is_loopback(const std::string& numeric_host) {
  return numeric_host.starts_with("127.") || numeric_host == "::1";
}

std::vector<std::string> reachable_addresses() {
  std::vector<std::string> v4, v6;
  for (InterfaceAddress& one : interface_addresses()) {
    if ((one.flags & IFF_UP) == 0 || (one.flags & IFF_LOOPBACK) != 0) continue;
    if (one.address.empty() || one.is_link_local()) continue;
    (one.family == AF_INET ? v4 : v6).push_back(std::move(one.address));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

Result<std::string> interface_address(const std::string& name) {
  std::string ipv6;
  std::set<std::string> names;
  for (const InterfaceAddress& one : interface_addresses()) {
    names.insert(one.interface);
    if (one.interface != name) continue;
    if (one.family == AF_INET) return one.address;
    // A link-local address needs a zone, which has no meaning on the other hosts.
    if (ipv6.empty() && !one.is_link_local()) ipv6 = one.address;
  }
  if (!ipv6.empty()) return ipv6;
  std::string known;
  for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
  return Error{ExitCode::kUsage,
               fmt::format("--interface: found \"{}\", expected an interface with an address: {}",
                           name, known)};
}

Result<std::string> address_towards(const std::string& host, const net::Wait& wait) {
  const auto found = net::resolve({host, kAnyPort}, net::AddressUse::kConnect, wait);
  if (!found.ok())
    return Error{ExitCode::kUsage,
                 fmt::format("{}: the name cannot be looked up, so --interface must say which "
                             "address the other hosts connect to",
                             host)};
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const FileDescriptor socket(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) continue;
    return numeric(reinterpret_cast<const sockaddr*>(&local), size);
  }
  return Error{ExitCode::kUsage, fmt::format("{}: found no route to this host", host)};
}

std::optional<std::uint16_t> find_free_ports(std::uint16_t first, std::uint16_t last, int count,
                                             int offset) {
  const int candidates = last - first + 2 - count;
  for (int i = 0; i < candidates; ++i) {
    const int start = first + (i + offset) % candidates;
    bool free = true;
    for (int port = start; free && port < start + count; ++port)
      free = net::Listener::bind({"", static_cast<std::uint16_t>(port)}).ok();
    if (free) return static_cast<std::uint16_t>(start);
  }
  return std::nullopt;
}

Result<std::filesystem::path> temporary_directory() {
  std::error_code problem;
  std::filesystem::path path = std::filesystem::temp_directory_path(problem);
  if (!problem) return path;
  const std::string given = environment_variable("TMPDIR");
  return Error{ExitCode::kUsage,
               fmt::format("{}: {}, expected a directory for temporary files; set TMPDIR",
                           given.empty() ? "/tmp" : "TMPDIR=" + given, problem.message())};
}

}  // namespace tilewright::elastic
