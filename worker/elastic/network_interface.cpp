#include "worker/elastic/network_interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>

#include "common/base/printable.h"
#include "common/contract/environment.h"

namespace tilewright::elastic {
namespace {

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* address = nullptr;
    if (each->ifa_addr->sa_family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const auto& ipv6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&ipv6)) address = &ipv6;
    }
    if (address == nullptr ||
        inet_ntop(each->ifa_addr->sa_family, address, text.data(), text.size()) == nullptr) {
      continue;
    }
    interfaces.push_back({each->ifa_name, text.data(), (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return interfaces;
}

InterfaceChoice interface_choice(const GetVariable& environment) {
  for (const char* variable : {env::kGlooSocketIfname, env::kNcclSocketIfname}) {
    if (std::string value = environment(variable); !value.empty()) return {variable, value};
  }
  return {};
}

Result<std::string> chosen_address(const InterfaceChoice& choice,
                                   const std::vector<NetworkInterface>& interfaces,
                                   const std::string& default_address) {
  if (choice.variable.empty()) return default_address;
  std::string_view list = choice.value;
  bool except = false, whole = choice.variable == env::kGlooSocketIfname;
  if (!whole) {
    except = list.starts_with('^');
    if (except) list.remove_prefix(1);
    whole = list.starts_with('=');
    if (whole) list.remove_prefix(1);
  }
  const std::vector<std::string_view> names = split(list);
  const auto fits = [&](const NetworkInterface& interface, std::string_view name) {
    return whole ? interface.name == name : std::string_view(interface.name).starts_with(name);
  };
  const auto right_family = [&](const NetworkInterface& interface) {
    return is_ipv6(interface.address) == is_ipv6(default_address);
  };
  if (except) {
    for (const NetworkInterface& interface : interfaces) {
      const bool named =
          std::ranges::any_of(names, [&](auto name) { return fits(interface, name); });
      if (!named && !interface.loopback && right_family(interface)) return interface.address;
    }
  } else {
    for (const std::string_view name : names) {
      for (const NetworkInterface& interface : interfaces) {
        if (fits(interface, name) && right_family(interface)) return interface.address;
      }
    }
  }
  std::set<std::string> existing;
  for (const NetworkInterface& interface : interfaces) {
    if (right_family(interface)) existing.insert(interface.name);
  }
  return Error{ExitCode::kUsage,
               fmt::format("{}: found \"{}\", which no network interface with an IPv{} address "
                           "fits, expected one of {}",
                           choice.variable, printable(choice.value),
                           is_ipv6(default_address) ? 6 : 4, fmt::join(existing, ", "))};
}

}  // namespace tilewright::elastic
