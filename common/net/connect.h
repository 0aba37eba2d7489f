// Opens TCP connections: connect_to() on the client, Listener on the server.
#pragma once

#include <sys/socket.h>

#include <functional>

#include "common/net/socket.h"

namespace tilewright::net {

enum class Retry { kNo, kUntilDeadline };

// How long kUntilDeadline waits for the answer of one address. The kernel repeats one SYN for about
// two minutes, and behind a ClusterIP all of them go to the endpoint of the first, which may be
// gone.
inline constexpr Duration kConnectAttempt = std::chrono::seconds(5);

// Resolves and connects. kUntilDeadline retries (after 10 ms, doubling to 500 ms) while the peer
// refuses, does not answer within `attempt`, or its name does not resolve. Errors carry kPeerLost.
Result<Socket> connect_to(const Address& address, const Wait& wait, Retry retry = Retry::kNo,
                          Duration attempt = kConnectAttempt);

class Listener {
 public:
  // Port 0 selects a free port; an empty host means all addresses, IPv4 and IPv6. Errors carry
  // kUsage: an unknown host, an address in use. `backlog`: most connections that wait to be
  // accepted; the kernel caps it (net.core.somaxconn).
  static Result<Listener> bind(const Address& address, int backlog = SOMAXCONN);
  // The bound address with its actual port; the host is numeric ("::" for all addresses, or
  // "0.0.0.0" on a system without IPv6).
  const Address& local_address() const { return local_; }
  int fd() const { return fd_.get(); }
  // Returns a Socket that is not connected if no connection is pending.
  Result<Socket> try_accept();
  // Calls accepted(socket) for the connections that are pending, but only for the first of a flood,
  // so that a server that calls it again can serve the others in between.
  Status accept_some(const std::function<void(Socket)>& accepted);

 private:
  FileDescriptor fd_;
  Address local_;
};

}  // namespace tilewright::net
