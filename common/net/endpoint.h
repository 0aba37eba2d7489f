// Conversion between Address and the kernel's socket addresses, and the resolution of names.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "common/net/address.h"
#include "common/net/wait.h"

namespace tilewright::net {

// `query` is getsockname or getpeername. The host is numeric.
Result<Address> address_of(int fd, int (*query)(int, sockaddr*, socklen_t*) noexcept);

struct AddrinfoDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddrinfoDeleter>;

enum class AddressUse { kConnect, kListen };

// The socket addresses of a host. The system's resolver has no timeout, so it runs in a detached
// thread that may outlive the Wait. Errors carry kPeerLost.
Result<AddressList> resolve(const Address& address, AddressUse use, const Wait& wait);

}  // namespace tilewright::net
