// The network interface at whose address other workers connect to this one, as PyTorch's users
// choose it: GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright::elastic {

struct NetworkInterface {
  std::string name;
  std::string address;  // numeric; IPv6 if it holds a ':'
  bool loopback = false;
};

// The addresses of the interfaces that are up, without link-local ones.
std::vector<NetworkInterface> network_interfaces();

// The variable with which the user chooses an interface, and its value.
struct InterfaceChoice {
  std::string variable;  // empty: none is set
  std::string value;
};
InterfaceChoice interface_choice(const GetVariable& environment);

// The address of the chosen interface, of the same family as `default_address`, which is returned
// if no variable is set. GLOO_SOCKET_IFNAME: names separated by commas; NCCL_SOCKET_IFNAME:
// prefixes of names, "=" before the list: names, "^": all others but loopback. The first that fits
// is chosen. Error: kUsage, with the names that exist.
Result<std::string> chosen_address(const InterfaceChoice& choice,
                                   const std::vector<NetworkInterface>& interfaces,
                                   const std::string& default_address);

}  // namespace tilewright::elastic
