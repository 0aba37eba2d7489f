// Streams of bytes between ranks over the messages of an MPI library. Each buffer that a caller
// writes is one message, sent from its place; a message is received into the memory of the reader
// that asks for its bytes, so nothing is copied. A reader must ask for whole buffers, as frames do:
// the header, then the payload.
//
// Of each peer, one direction:
//
//   sending:    IDLE -- try_write: a message per buffer --> IN FLIGHT -- all complete --> IDLE
//   receiving:  IDLE -- try_read: a message has arrived --> IN FLIGHT -- complete --> IDLE
//
// MPI has no descriptor to poll: wait() returns after a pause that grows while nothing is
// transferred, and the caller's next calls make progress.
#pragma once

#include <vector>

#include "worker/collectives/mpi_port.h"
#include "worker/collectives/transport.h"

namespace tilewright::collectives {

class MpiTransport : public Transport {
 public:
  static constexpr std::size_t kMaxMessage = std::size_t{1} << 30;

  // `port` outlives the transport.
  explicit MpiTransport(MpiPort& port);

  Result<std::size_t> try_read(int peer, std::span<std::byte> bytes) override;
  Result<std::size_t> try_write(int peer, std::span<iovec> buffers) override;
  bool reports_late() const override { return true; }
  bool shares_memory(int) const override { return false; }
  bool detects_changes(int) const override { return false; }
  // Sends nothing: MPI may still write to buffers of this rank during any call. The rendezvous
  // tells the peers why this rank leaves.
  void send_last(int, std::span<iovec>) override {}
  void watch(int, short, std::vector<pollfd>&) override {}
  void watch_idle(int, std::vector<pollfd>&) const override {}
  void note_ready(std::span<const pollfd>) override {}
  void wait(std::vector<pollfd>& fds, MonotonicTime deadline) override;

 private:
  struct Link {
    std::vector<MpiPort::Request> sends;  // in flight
    std::size_t sending = 0;              // bytes; 0: idle
    MpiPort::Request receive = nullptr;   // in flight
    std::size_t receiving = 0;            // bytes; 0: idle
    const std::byte* into = nullptr;
  };
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }

  MpiPort& port_;
  std::vector<Link> links_;  // by rank
  int idle_waits_ = 0;       // since the last transfer
};

}  // namespace tilewright::collectives
