// What a mesh needs of the links between ranks: one ordered stream of bytes to and from each peer.
// TcpTransport uses the authenticated connections of build_mesh(), MpiTransport an MPI library.
#pragma once

#include <poll.h>

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/socket.h"

namespace tilewright::collectives {

// Not thread-safe. After an Error (kPeerLost) no other function may be called but send_last().
class Transport {
 public:
  virtual ~Transport() = default;

  // Transfer as much as possible without blocking; 0 if nothing. After a call that transferred less
  // than asked, the next one to the same peer must continue with the same memory. A sender may
  // change or release what try_write() has taken.
  virtual Result<std::size_t> try_read(int peer, std::span<std::byte> bytes) = 0;
  virtual Result<std::size_t> try_write(int peer, std::span<iovec> buffers) = 0;
  // Whether a peer can have received bytes that try_write() has not reported as taken.
  virtual bool reports_late() const = 0;
  // Whether the link itself detects altered bytes, so that frames need no checksum.
  virtual bool detects_changes(int peer) const = 0;
  // Sends a last frame if that is possible without blocking, and ends the stream.
  virtual void send_last(int peer, std::span<iovec> buffers) = 0;

  // Appends the poll(2) entry of a caller that waits for `events` (POLLIN, POLLOUT) of a peer, if
  // the peer has one.
  virtual void watch(int peer, short events, std::vector<pollfd>& fds) const = 0;
  // Returns when one of the entries is ready, when a peer without an entry may be, or at the
  // deadline.
  virtual void wait(std::vector<pollfd>& fds, MonotonicTime deadline) = 0;
};

class TcpTransport : public Transport {
 public:
  explicit TcpTransport(std::size_t world) : sockets_(world) {}

  net::Socket& socket(int peer) { return sockets_[static_cast<std::size_t>(peer)]; }

  Result<std::size_t> try_read(int peer, std::span<std::byte> bytes) override {
    return socket(peer).try_read(bytes);
  }
  Result<std::size_t> try_write(int peer, std::span<iovec> buffers) override {
    return socket(peer).try_write(buffers);
  }
  bool reports_late() const override { return false; }
  bool detects_changes(int peer) const override { return of(peer).encrypted(); }
  void send_last(int peer, std::span<iovec> buffers) override;
  void watch(int peer, short events, std::vector<pollfd>& fds) const override {
    fds.push_back({of(peer).fd(), of(peer).poll_events(events), 0});
  }
  void wait(std::vector<pollfd>& fds, MonotonicTime deadline) override;

 private:
  const net::Socket& of(int peer) const { return sockets_[static_cast<std::size_t>(peer)]; }
  std::vector<net::Socket> sockets_;  // by rank; this rank's own is not connected
};

}  // namespace tilewright::collectives
