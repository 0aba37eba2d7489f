// The kernel's socket addresses as Address and back; for this room only.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "common/net/address.h"
#include "common/net/wait.h"

namespace tilewright::net {

// `query` is getsockname or getpeername. The host is numeric.
Result<Address> address_of(int fd, int (*query)(int, sockaddr*, socklen_t*) noexcept);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

// The socket addresses of a host; numeric hosts at once, names through the system's resolver, which
// knows no deadline: it runs in a thread of its own that is left behind when the Wait ends first.
// Errors carry kPeerLost. `passive`: addresses to listen on.
Result<AddressList> resolve(const Address& address, bool passive, const Wait& wait);

}  // namespace tilewright::net
