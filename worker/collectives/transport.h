// What a mesh needs of the links between ranks: one ordered stream of bytes to and from each peer.
// PeerTransport uses what build_mesh() has set up, MpiTransport an MPI library.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/socket.h"
#include "worker/collectives/shared_memory_link.h"

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
  // Whether the stream is in memory that both processes have mapped.
  virtual bool shares_memory(int peer) const = 0;
  // Whether the link itself detects altered bytes, so that frames need no checksum.
  virtual bool detects_changes(int peer) const = 0;
  // Sends a last frame if that is possible without blocking, and ends the stream.
  virtual void send_last(int peer, std::span<iovec> buffers) = 0;

  // Appends the poll(2) entry of a caller that waits for `events` (POLLIN, POLLOUT) of a peer, if
  // the peer has one.
  virtual void watch(int peer, short events, std::vector<pollfd>& fds) = 0;
  // Appends the poll(2) entry, if there is one, of a thread that waits without wait() until a peer
  // sends or is lost, while other threads may call the other functions. What the peer writes to
  // shared memory does not end such a wait.
  virtual void watch_idle(int peer, std::vector<pollfd>& fds) const = 0;
  // Call with those entries after the wait, before the next call of the other functions.
  virtual void note_ready(std::span<const pollfd> fds) = 0;
  // Returns when one of the entries is ready, when a peer without an entry may be, or at the
  // deadline.
  virtual void wait(std::vector<pollfd>& fds, MonotonicTime deadline) = 0;
};

// TCP connections that have proved the job's secret. With a process of this host the stream is in
// shared memory; the connection then carries single bytes that wake a sleeping end, and its end is
// the end of the stream.
class PeerTransport : public Transport {
 public:
  explicit PeerTransport(std::size_t world) : links_(world) {}

  net::Socket& socket(int peer) { return link(peer).socket; }
  // `memory` may be null.
  void connect(int peer, net::Socket socket, std::unique_ptr<SharedMemoryLink> memory) {
    link(peer).socket = std::move(socket);
    link(peer).memory = std::move(memory);
  }

  Result<std::size_t> try_read(int peer, std::span<std::byte> bytes) override;
  Result<std::size_t> try_write(int peer, std::span<iovec> buffers) override;
  bool reports_late() const override { return false; }
  bool shares_memory(int peer) const override { return link(peer).memory != nullptr; }
  bool detects_changes(int peer) const override {
    return shares_memory(peer) || link(peer).socket.encrypted();
  }
  void send_last(int peer, std::span<iovec> buffers) override;
  void watch(int peer, short events, std::vector<pollfd>& fds) override;
  void watch_idle(int peer, std::vector<pollfd>& fds) const override;
  void note_ready(std::span<const pollfd> fds) override;
  void wait(std::vector<pollfd>& fds, MonotonicTime deadline) override;

 private:
  struct Link {
    net::Socket socket;
    std::unique_ptr<SharedMemoryLink> memory;
    std::uint32_t awaited = 0;   // watched for by the next wait()
    bool signalled = false;      // the connection may have a byte or its end
    std::optional<Error> ended;  // how the connection ended
  };
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }
  const Link& link(int peer) const { return links_[static_cast<std::size_t>(peer)]; }
  static void wake_peer_if_needed(Link& link);
  static void read_signals(Link& link);
  bool may_sleep();

  std::vector<Link> links_;  // by rank; this rank's own is not connected
};

}  // namespace tilewright::collectives
