// The connections of one epoch: every rank with every other over TCP, each proved to know the job's
// secret and to be the rank it says, in this epoch of this job.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "worker/collectives/frame.h"

namespace tilewright::collectives {

struct MeshConfig {
  std::string job_uid;
  std::uint64_t epoch = 0;
  int rank = 0;
  std::vector<net::Address> peers;  // of all ranks, by rank; one's own is not used
  // A stranger that says nothing is dropped after this.
  Duration handshake_limit = std::chrono::seconds(5);
  bool tls = false;  // the same on all ranks: a rank with it and one without do not meet
};

// One thread at a time may use a mesh, except for abort().
class Mesh {
 public:
  // A world of one: no sockets.
  static std::unique_ptr<Mesh> alone();

  int rank() const { return config_.rank; }
  int world() const { return static_cast<int>(sockets_.size()); }
  std::uint64_t epoch() const { return config_.epoch; }
  net::Socket& socket(int peer) { return sockets_[static_cast<std::size_t>(peer)]; }
  // What poll(2) has to watch for a caller that waits for `events` of a peer.
  pollfd watch(int peer, short events) const {
    const net::Socket& one = sockets_[static_cast<std::size_t>(peer)];
    return {one.fd(), one.poll_events(events), 0};
  }
  std::string name(int peer) const;  // "rank 2 (10.0.0.3:29500)", for sentences

  // Ends every wait of this mesh, now and later, with a Failure that gives the reason. Any thread.
  void abort(const std::string& reason);
  const net::WakeUp& bell() const { return bell_; }  // rung by abort()
  void throw_if_aborted() const;

  // All ranks call the same operations in the same order; this counts them.
  std::uint64_t next_operation() { return ++operation_; }
  // Throws when a header is not of this epoch and operation, or when it says that the peer has
  // given up; the reason is then read from the socket.
  void check(int peer, const FrameHeader& header, std::uint64_t operation);
  // A Failure with kPeerLost about a peer; `what` continues the sentence after its name.
  Failure lost(int peer, const std::string& what) const;
  // Tells a peer, where no frame to it is under way, why this rank gives up, and hangs up: the peer
  // may be waiting for this rank alone and would never learn who failed. Never waits or throws.
  void give_up(int peer, bool frame_under_way, std::string_view reason);

 private:
  friend class MeshBuilder;
  Mesh(MeshConfig config, std::vector<net::Socket> sockets)
      : config_(std::move(config)), sockets_(std::move(sockets)) {}

  MeshConfig config_;
  std::vector<net::Socket> sockets_;  // by rank; one's own is not connected
  std::uint64_t operation_ = 0;
  net::WakeUp bell_;
  Failure told(int peer, const FrameHeader& header);

  mutable std::mutex reason_mutex_;
  std::string reason_;
};

// Connects to the lower ranks, accepts the higher ones and checks who everybody is. Connections of
// strangers and of other epochs are turned away while the others are waited for. Throws
// Failure(kPeerLost) when the mesh is not complete by the deadline, when a peer says that this
// epoch is over, when a peer is lost again, or when `cancel` rings.
std::unique_ptr<Mesh> build_mesh(net::Listener& listener, const MeshConfig& config,
                                 const net::SecretKey& key, MonotonicTime deadline,
                                 const net::WakeUp* cancel = nullptr);

}  // namespace tilewright::collectives
