#include "common/net/connect.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/net/endpoint.h"

namespace tilewright::net {
namespace {

constexpr Duration kInitialBackoff = std::chrono::milliseconds(10);
constexpr Duration kMaxBackoff = std::chrono::milliseconds(500);
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
    if (ready == Ready::kTimedOut) return refused(address, "no answer before the deadline");
    int failure = 0;
    socklen_t size = sizeof failure;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return refused(address, std::strerror(failure));
  }
  // A connect to a free ephemeral port may connect to itself (TCP simultaneous open).
  const auto local = address_of(fd.get(), getsockname);
  const auto remote = address_of(fd.get(), getpeername);
  if (local.ok() && remote.ok() && *local == *remote) {
    return refused(address, "the connection reached itself");
  }
  return Socket(std::move(fd));
}

// Tries each address of the host once, for at most `longest`, and divides the remaining time evenly
// among them.
Result<Socket> connect_to_any(const Address& address, const Wait& wait, Duration longest) {
  auto list = resolve(address, AddressUse::kConnect, wait);
  if (!list.ok()) return list.error();
  int left = 0;
  for (const addrinfo* one = list->get(); one; one = one->ai_next) ++left;
  Error last = refused(address, "the host has no address");
  for (const addrinfo* one = list->get(); one; one = one->ai_next, --left) {
    const auto now = monotonic_now();
    const Wait attempt(now + std::min<Duration>((wait.deadline - now) / left, longest),
                       wait.cancel);
    auto socket = connect_once(address, *one, attempt);
    if (socket.ok()) return socket;
    last = socket.error();
    if (wait.cancel && wait.cancel->signalled()) break;
  }
  return last;
}

}  // namespace

Result<Socket> connect_to(const Address& address, const Wait& wait, Retry retry, Duration attempt) {
  Duration backoff = kInitialBackoff;
  while (true) {
    auto socket = connect_to_any(address, wait, retry == Retry::kNo ? Duration::max() : attempt);
    if (socket.ok() || retry == Retry::kNo) return socket;
    if (!pause_for(wait, backoff)) return socket;
    backoff = std::min(backoff * 2, kMaxBackoff);
  }
}

Result<Listener> Listener::bind(const Address& address, int backlog) {
  const auto refuse = [&address](const std::string& why) {
    return Error{ExitCode::kUsage, fmt::format("cannot listen on {}: {}", to_string(address), why)};
  };
  auto list = resolve(address, AddressUse::kListen, within(std::chrono::seconds(10)));
  if (!list.ok()) return refuse(list.error().message);
  std::vector<const addrinfo*> candidates;
  for (const addrinfo* one = list->get(); one; one = one->ai_next) candidates.push_back(one);
  // An empty host means all addresses. Prefer IPv6, whose sockets also accept IPv4 connections.
  if (address.host.empty()) {
    std::stable_partition(candidates.begin(), candidates.end(),
                          [](const addrinfo* one) { return one->ai_family == AF_INET6; });
  }
  std::string why = "the host has no address";
  for (const addrinfo* one : candidates) {
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
    // The connection failed while it was queued (accept(2) says to retry on these errors).
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
        errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EPERM) {
      continue;
    }
    return Error{ExitCode::kPeerLost, fmt::format("{}: cannot accept a connection: {}",
                                                  to_string(local_), std::strerror(errno))};
  }
}

Status Listener::accept_some(const std::function<void(Socket)>& accepted) {
  constexpr int kMost = 64;
  for (int i = 0; i < kMost; ++i) {
    Result<Socket> socket = try_accept();
    if (!socket.ok()) return socket.error();
    if (!socket->connected()) break;
    accepted(std::move(socket).value());
  }
  return {};
}

}  // namespace tilewright::net
