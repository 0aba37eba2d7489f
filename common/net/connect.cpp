// How connections come to be: Listener and connect_to.
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/net/endpoint.h"
#include "common/net/socket.h"

namespace tilewright::net {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

Error refused(const Address& address, const std::string& why) {
  return {ExitCode::kPeerLost, fmt::format("{}: cannot connect: {}", to_string(address), why)};
}

Result<Socket> connect_once(const Address& address, const addrinfo& to, const Wait& wait) {
  FileDescriptor fd(socket(to.ai_family, to.ai_socktype | kSocketFlags, to.ai_protocol));
  if (fd.get() < 0) return refused(address, std::strerror(errno));
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return refused(address, std::strerror(errno));
    const Ready ready = wait_ready(fd.get(), POLLOUT, wait);
    if (ready == Ready::kCancelled) return refused(address, "the wait was cancelled");
    if (ready == Ready::kTimedOut) return refused(address, "no answer by the deadline");
    int failure = 0;
    socklen_t size = sizeof failure;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return refused(address, std::strerror(failure));
  }
  // A free ephemeral port that connects to itself (simultaneous open) is no peer.
  const auto local = address_of(fd.get(), getsockname);
  const auto remote = address_of(fd.get(), getpeername);
  if (local.ok() && remote.ok() && *local == *remote) {
    return refused(address, "the connection reached itself");
  }
  return Socket(std::move(fd));
}

// Each of the host's addresses once; an address that does not answer leaves time for the next.
Result<Socket> connect_to_any(const Address& address, const Wait& wait) {
  auto list = resolve(address, false, wait);
  if (!list.ok()) return list.error();
  int left = 0;
  for (const addrinfo* one = list->get(); one; one = one->ai_next) ++left;
  Error last = refused(address, "the host has no address");
  for (const addrinfo* one = list->get(); one; one = one->ai_next, --left) {
    const auto now = monotonic_now();
    const Wait share(now + (wait.deadline - now) / left, wait.cancel);
    auto socket = connect_once(address, *one, share);
    if (socket.ok()) return socket;
    last = socket.error();
    if (wait.cancel && wait.cancel->signalled()) break;
  }
  return last;
}

}  // namespace

Result<Socket> connect_to(const Address& address, const Wait& wait, Retry retry) {
  Duration pause = kFirstPause;
  while (true) {
    auto socket = connect_to_any(address, wait);
    if (socket.ok() || retry == Retry::kNo) return socket;
    // Nothing tells when a remote port starts to listen, so this one wait is a plain pause.
    const Wait nap(std::min(wait.deadline, monotonic_now() + pause), wait.cancel);
    if (wait_ready(-1, 0, nap) == Ready::kCancelled || monotonic_now() >= wait.deadline) {
      return socket;
    }
    pause = std::min(pause * 2, kLongestPause);
  }
}

Result<Listener> Listener::bind(const Address& address, int backlog) {
  const auto refuse = [&address](const std::string& why) {
    return Error{ExitCode::kUsage, fmt::format("cannot listen on {}: {}", to_string(address), why)};
  };
  auto list = resolve(address, true, within(std::chrono::seconds(10)));
  if (!list.ok()) return refuse(list.error().message);
  std::vector<const addrinfo*> places;
  for (const addrinfo* one = list->get(); one; one = one->ai_next) places.push_back(one);
  // No host is every address of both families, where the system has both: IPv6's socket takes IPv4
  // connections too.
  if (address.host.empty()) {
    std::stable_partition(places.begin(), places.end(),
                          [](const addrinfo* one) { return one->ai_family == AF_INET6; });
  }
  std::string why = "the host has no address";
  for (const addrinfo* one : places) {
    FileDescriptor fd(socket(one->ai_family, one->ai_socktype | kSocketFlags, one->ai_protocol));
    if (fd.get() >= 0) {
      const int yes = 1, no = 0;
      setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (address.host.empty() && one->ai_family == AF_INET6) {
        setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      }
    }
    if (fd.get() >= 0 && ::bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        listen(fd.get(), backlog) == 0) {
      auto local = address_of(fd.get(), getsockname);
      if (!local.ok()) return refuse(local.error().message);
      Listener listener;
      listener.fd_ = std::move(fd);
      listener.local_ = *std::move(local);
      return listener;
    }
    why = std::strerror(errno);
  }
  return refuse(why);
}

Result<Socket> Listener::try_accept() {
  while (true) {
    FileDescriptor fd(accept4(fd_.get(), nullptr, nullptr, kSocketFlags));
    if (fd.get() >= 0) return Socket(std::move(fd));
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Socket();
    // The connection died in the queue (accept(2) lists these as the caller's to ignore).
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
        errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EPERM) {
      continue;
    }
    return Error{ExitCode::kPeerLost, fmt::format("{}: cannot accept a connection: {}",
                                                  to_string(local_), std::strerror(errno))};
  }
}

Result<Socket> Listener::accept(const Wait& wait) {
  while (true) {
    auto socket = try_accept();
    if (!socket.ok() || socket->connected()) return socket;
    const Ready ready = wait_ready(fd_.get(), POLLIN, wait);
    if (ready != Ready::kYes) {
      return Error{ExitCode::kPeerLost, fmt::format("{}: {}", to_string(local_),
                                                    ready == Ready::kCancelled
                                                        ? "the wait for a connection was cancelled"
                                                        : "nobody connected by the deadline")};
    }
  }
}

}  // namespace tilewright::net
