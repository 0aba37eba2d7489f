// The links of one membership epoch, between each pair of ranks one per stream. Over TCP and shared
// memory each peer has proved that it has the job's secret, and both ends have checked version,
// job, epoch, ranks and instances. Over MPI the launcher has connected the ranks.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/connect.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "worker/collectives/frame.h"
#include "worker/collectives/transport.h"

namespace tilewright::collectives {

// Higher after every change of the greeting (mesh_builder.cpp) or of the frames. The proof, the
// size of the greeting, the place of the version in it and the replies are the same in all
// versions, so that a process of another version gets a reason.
inline constexpr std::uint64_t kMeshProtocolVersion = 8;

inline constexpr int kMaxStreams = 16;

struct MeshPeer {
  net::Address address;
  std::uint64_t instance_id = 0;  // of its process, from the rendezvous; 0 in a single process
};

// Whether ranks of one host exchange their data through shared memory.
enum class SharedMemory {
  kIfPossible,  // otherwise TCP
  kNever,
  kRequired,  // build_mesh() throws Failure(kUnsupported) if a peer is not on this host
};

struct MeshConfig {
  std::string job_uid;
  std::uint64_t epoch = 0;  // membership epoch
  int rank = 0;
  std::vector<MeshPeer> peers;  // by rank; the address of peers[rank] is only for messages
  // A connection that has not authenticated itself by then is closed.
  Duration handshake_timeout = std::chrono::seconds(5);
  bool tls = false;  // must be equal on all ranks
  SharedMemory shared_memory = SharedMemory::kIfPossible;
};

// Not thread-safe, except for abort(); streams may be used by one thread each.
class Mesh {
 public:
  // A mesh with one rank and no sockets.
  static std::unique_ptr<Mesh> single_rank();

  // A mesh over links that exist already. The addresses of the peers are only for messages.
  Mesh(MeshConfig config, std::unique_ptr<Transport> transport)
      : config_(std::move(config)), transport_(std::move(transport)) {}

  int rank() const { return config_.rank; }
  int world() const { return static_cast<int>(config_.peers.size()); }
  std::uint64_t epoch() const { return config_.epoch; }
  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  const MeshConfig& config() const { return config_; }

  // Streams are meshes of the same ranks with links of their own. This mesh is stream 0 and owns
  // the others.
  int streams() const { return 1 + static_cast<int>(streams_.size()); }
  Mesh& stream(int index) {
    return index == 0 ? *this : *streams_[static_cast<std::size_t>(index - 1)];
  }
  void add_stream(std::unique_ptr<Mesh> stream);
  // A further stream, which no Reducer uses; null: there is none. See background_copy.h.
  Mesh* background() const { return background_.get(); }
  void set_background(std::unique_ptr<Mesh> stream);
  std::string name(int peer) const;  // for messages: "rank 2 (10.0.0.3:29500)"
  // What the links of this rank use, for messages: "over TCP", "through shared memory with 1 rank,
  // over TCP with 2".
  std::string links() const;

  // Ends all current and later operations of all streams with a Failure that contains the reason.
  // Thread-safe.
  void abort(const std::string& reason);
  const net::WakeUp& cancel_token() const { return cancel_token_; }  // signalled by abort()
  void throw_if_aborted() const;

  // Returns the number of the next operation. All ranks call the same operations in the same order.
  std::uint64_t next_operation() { return ++operation_; }
  // Completes the header of a frame to a peer: epoch, size of the payload, checksums. The payload
  // must not change before it is sent.
  void seal(int peer, FrameHeader& header, std::span<const iovec> payload) const;
  // Throws if a header was altered or is not of this epoch and operation, or if it is a kAbort;
  // then reads the reason from the socket.
  void check(int peer, const FrameHeader& header, std::uint64_t operation);
  // Throws if a received payload does not match the checksum in its header.
  void check_payload(int peer, const FrameHeader& header, std::span<const std::byte> payload) const;
  // Returns a Failure with ExitCode::kPeerLost: the peer's name, then `what`.
  Failure lost(int peer, const std::string& what) const;
  // Tells a peer why this rank leaves the epoch and closes the sending direction. Without it, a
  // peer that waits only for this rank would not learn which rank failed. Sends no reason in the
  // middle of a frame. Never blocks or throws.
  void send_abort(int peer, bool frame_in_flight, std::string_view reason);

 private:
  MeshConfig config_;
  std::unique_ptr<Transport> transport_;
  std::uint64_t operation_ = 0;
  net::WakeUp cancel_token_;
  Failure read_abort_reason(int peer, const FrameHeader& header);

  mutable std::mutex abort_mutex_;  // of reason_, and of changes of streams_ and background_
  std::string reason_;
  std::vector<std::unique_ptr<Mesh>> streams_;
  std::unique_ptr<Mesh> background_;
};

// Connects to the lower ranks, accepts the higher ranks and authenticates all of them. Meanwhile it
// rejects unauthenticated connections and those of other epochs. Throws Failure(kPeerLost) if the
// mesh is not complete by the deadline, if a peer reports that this epoch is over, if a connected
// peer is lost, or if `cancel` is signalled; Failure(kUnsupported) if a peer uses another version
// of the protocol, or if there is no shared memory and it is required.
std::unique_ptr<Mesh> build_mesh(net::Listener& listener, const MeshConfig& config,
                                 const net::SecretKey& key, MonotonicTime deadline,
                                 const net::WakeUp* cancel = nullptr);

// Connects the same ranks again, until the mesh has `streams` streams, the same number on all
// ranks. All must have built the mesh; open_streams() waits for that. Throws as build_mesh() does.
// Collective.
void add_streams(Mesh& mesh, int streams, net::Listener& listener, const net::SecretKey& key,
                 MonotonicTime deadline, const net::WakeUp* cancel = nullptr);

// Connects the same ranks again, as Mesh::background(). No rank is still in build_mesh() or
// add_streams(). Throws as build_mesh() does. Collective.
void add_background(Mesh& mesh, net::Listener& listener, const net::SecretKey& key,
                    MonotonicTime deadline, const net::WakeUp* cancel = nullptr);

}  // namespace tilewright::collectives
