#include "common/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/net/endpoint.h"
#include "common/net/tls_stream.h"

namespace tilewright::net {
namespace {

// TCP keep-alive closes the connection to an unresponsive host after 15 + 3 x 5 s. Heartbeats
// normally detect it earlier.
constexpr int kKeepAliveIdleSeconds = 15;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;

void set_option(int fd, int level, int name, int value) {
  // Fails only on a broken stream; the first read or write then reports the error.
  setsockopt(fd, level, name, &value, sizeof value);
}

std::size_t size_of(std::span<const iovec> buffers) {
  std::size_t size = 0;
  for (const iovec& one : buffers) size += one.iov_len;
  return size;
}

bool ended(const Wait& wait) {
  return monotonic_now() >= wait.deadline || (wait.cancel && wait.cancel->signalled());
}

constexpr std::size_t kMaxIovecs = 1024;  // IOV_MAX of Linux

msghdr header_for(std::span<iovec> buffers) {
  msghdr header{};
  header.msg_iov = buffers.data();
  header.msg_iovlen = std::min(buffers.size(), kMaxIovecs);
  return header;
}

}  // namespace

Socket::Socket() = default;
Socket::~Socket() = default;
Socket::Socket(Socket&&) noexcept = default;
Socket& Socket::operator=(Socket&&) noexcept = default;

Socket::Socket(FileDescriptor fd) : fd_(std::move(fd)) {
  const int flags = fcntl(fd_.get(), F_GETFL);
  fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
  fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
  set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set_option(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  const auto address = address_of(fd_.get(), getpeername);
  peer_ = address.ok() ? to_string(*address) : "a disconnected peer";
}

Result<Address> Socket::local_address() const { return address_of(fd_.get(), getsockname); }

Error Socket::lost(const std::string& what) const {
  return {ExitCode::kPeerLost, fmt::format("{} {}", peer_, what)};
}

Status Socket::wait_for(short events, const Wait& wait, std::size_t done, std::size_t total) const {
  const bool reading = (events & POLLIN) != 0;
  // After the deadline, do not poll the descriptor: the call times out even if it is ready.
  switch (wait_ready(monotonic_now() < wait.deadline ? fd_.get() : -1, poll_events(events), wait)) {
    case Ready::kYes:
      return {};
    case Ready::kCancelled:
      return lost(fmt::format("did not complete the transfer: cancelled after {} of {} bytes", done,
                              total));
    case Ready::kTimedOut:
      break;
  }
  return lost(
      fmt::format("timed out: {} {} of {} bytes", reading ? "received" : "sent", done, total));
}

Result<std::size_t> Socket::try_read(std::span<iovec> buffers) {
  if (size_of(buffers) == 0) return std::size_t{0};
  if (tls_) {
    const iovec& first =
        *std::ranges::find_if(buffers, [](const iovec& p) { return p.iov_len > 0; });
    auto got = tls_->read({static_cast<std::byte*>(first.iov_base), first.iov_len});
    if (!got.ok()) return lost(got.error().message);
    return got;
  }
  msghdr header = header_for(buffers);
  while (true) {
    const ssize_t got = recvmsg(fd_.get(), &header, 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return lost("closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return lost(fmt::format("broke the connection: {}", std::strerror(errno)));
  }
}

Result<std::size_t> Socket::try_write(std::span<iovec> buffers) {
  if (size_of(buffers) == 0) return std::size_t{0};
  if (tls_) return try_write_tls(buffers);
  const msghdr header = header_for(buffers);
  while (true) {
    const ssize_t sent = sendmsg(fd_.get(), &header, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) return lost(fmt::format("broke the connection: {}", std::strerror(errno)));
  }
}

Result<std::size_t> Socket::try_write_tls(std::span<const iovec> buffers) {
  std::size_t total = 0;
  for (const iovec& one : buffers) {
    std::span<const std::byte> left(static_cast<const std::byte*>(one.iov_base), one.iov_len);
    while (!left.empty()) {
      const auto sent = tls_->write(left);
      if (!sent.ok()) return lost(sent.error().message);
      if (*sent == 0) return total;
      total += *sent;
      left = left.subspan(*sent);
    }
  }
  return total;
}

void Socket::connect_tls(const TlsKey& key) { connect_tls(key, {}); }
void Socket::connect_tls(const TlsKey& key, const TlsLimits& limits) {
  tls_ = TlsStream::client(fd(), key, limits);
}
void Socket::accept_tls(FindTlsKey find, std::string_view received) {
  accept_tls(std::move(find), received, {});
}
void Socket::accept_tls(FindTlsKey find, std::string_view received, const TlsLimits& limits) {
  tls_ = TlsStream::server(fd(), std::move(find), received, limits);
}

Result<bool> Socket::advance_tls() {
  if (!tls_) return true;
  auto done = tls_->handshake();
  if (!done.ok()) return lost(done.error().message);
  return done;
}

Status Socket::finish_tls(const Wait& wait) {
  while (true) {
    const auto done = advance_tls();
    if (!done.ok()) return done.error();
    if (*done) return {};
    switch (wait_ready(fd(), poll_events(POLLIN), wait)) {
      case Ready::kYes:
        break;
      case Ready::kCancelled:
        return lost("did not complete the TLS handshake: cancelled");
      case Ready::kTimedOut:
        return lost("did not finish the TLS handshake by the deadline (does it use TLS?)");
    }
  }
}

short Socket::poll_events(short events) const {
  if (!tls_) return events;
  return static_cast<short>((events & ~(POLLIN | POLLOUT)) |
                            ((events & POLLIN) != 0 ? tls_->read_events() : 0) |
                            ((events & POLLOUT) != 0 ? tls_->write_events() : 0));
}

bool Socket::buffered() const { return tls_ && tls_->buffered(); }

Result<std::size_t> Socket::try_read(std::span<std::byte> bytes) {
  iovec one = make_iovec(bytes.data(), bytes.size());
  return try_read(std::span(&one, 1));
}

Result<std::size_t> Socket::try_write(std::span<const std::byte> bytes) {
  iovec one = make_iovec(bytes.data(), bytes.size());
  return try_write(std::span(&one, 1));
}

Status Socket::read_exact(std::span<iovec> buffers, const Wait& wait) {
  const std::size_t total = size_of(buffers);
  for (std::size_t done = 0; done < total;) {
    const auto got = try_read(buffers);
    if (!got.ok()) return got.error();
    done += *got;
    buffers = advance(buffers, *got);
    // A peer that sends few bytes at a time does not extend the deadline.
    if (done < total && (*got == 0 || ended(wait))) {
      if (auto status = wait_for(POLLIN, wait, done, total); !status.ok()) return status;
    }
  }
  return {};
}

Status Socket::write_all(std::span<iovec> buffers, const Wait& wait) {
  const std::size_t total = size_of(buffers);
  for (std::size_t done = 0; done < total;) {
    const auto sent = try_write(buffers);
    if (!sent.ok()) return sent.error();
    done += *sent;
    buffers = advance(buffers, *sent);
    // A peer that reads few bytes at a time does not extend the deadline.
    if (done < total && (*sent == 0 || ended(wait))) {
      if (auto status = wait_for(POLLOUT, wait, done, total); !status.ok()) return status;
    }
  }
  return {};
}

Status Socket::read_exact(std::span<std::byte> bytes, const Wait& wait) {
  iovec one = make_iovec(bytes.data(), bytes.size());
  return read_exact(std::span(&one, 1), wait);
}

Status Socket::write_all(std::span<const std::byte> bytes, const Wait& wait) {
  iovec one = make_iovec(bytes.data(), bytes.size());
  return write_all(std::span(&one, 1), wait);
}

bool Socket::peer_closed() const {
  pollfd one{fd_.get(), POLLRDHUP, 0};
  return !connected() || (poll(&one, 1, 0) > 0 && one.revents != 0);
}

void Socket::shutdown_write() {
  if (tls_) tls_->end();
  shutdown(fd_.get(), SHUT_WR);
}

void Socket::close() {
  tls_.reset();
  fd_.reset();
}

std::span<iovec> advance(std::span<iovec> buffers, std::size_t bytes) {
  while (!buffers.empty() && bytes >= buffers.front().iov_len) {
    bytes -= buffers.front().iov_len;
    buffers = buffers.subspan(1);
  }
  if (bytes > 0) {
    TW_CHECK(!buffers.empty(), "advanced {} bytes past the end of a gather list", bytes);
    buffers.front().iov_base = static_cast<std::byte*>(buffers.front().iov_base) + bytes;
    buffers.front().iov_len -= bytes;
  }
  return buffers;
}

}  // namespace tilewright::net
