// Ports of this machine for servers under test.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/base/file_descriptor.h"

namespace tilewright::testing {

// Returns a free port of 127.0.0.1, below the ephemeral port range so that it stays free until the
// program binds it. Concurrent test programs search different ranges.
inline int free_port() {
  constexpr int kFirst = 12000;
  constexpr int kCount = 8000;
  static int next = static_cast<int>(static_cast<long>(getpid()) * 7 % kCount);
  for (int tries = 0; tries < kCount; ++tries) {
    const int port = kFirst + next++ % kCount;
    const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
  throw std::runtime_error("no port between 12000 and 20000 is free on 127.0.0.1");
}

// A port that is free on all addresses and that only an explicit bind with SO_REUSEADDR gets, such
// as that of net::Listener: the kernel gives a port that has a bound socket to no other. Until then
// a connection to it is refused.
class ReservedPort {
 public:
  ReservedPort() {
    if (!reserve(AF_INET6) && !reserve(AF_INET))  // without IPv6
      throw std::runtime_error("no port is free on all addresses");
  }

  std::uint16_t number() const { return number_; }

 private:
  bool reserve(sa_family_t family) {
    socket_ = FileDescriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, off = 0;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 address{};  // its port is where that of sockaddr_in is
    address.sin6_family = family;
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_.get(), raw, size) != 0 || getsockname(socket_.get(), raw, &size) != 0)
      return false;
    number_ = ntohs(address.sin6_port);
    return true;
  }

  FileDescriptor socket_;
  std::uint16_t number_ = 0;
};

inline std::string loopback_address(int port) { return "127.0.0.1:" + std::to_string(port); }

}  // namespace tilewright::testing
