// The frames of one operation between this rank and some of its peers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/collectives/mesh.h"

namespace tilewright::collectives {

// All transfers are non-blocking and run concurrently, so ranks cannot deadlock on the order of
// their sends. The bytes that are sent and received outlive the object.
class FrameExchange {
 public:
  FrameExchange(Mesh& mesh, FrameKind kind, std::uint64_t operation, MonotonicTime deadline);

  void send(int peer, std::span<const std::byte> bytes, std::uint64_t chunk = 0);
  // A text of any size up to max_bytes.
  void receive(int peer, std::string* text, std::size_t max_bytes);
  void receive(int peer, std::span<std::byte> bytes);
  // Returns when all is sent and received. Throws Failure(kPeerLost) that names a rank.
  void run();

 private:
  // A frame that is sent to a peer.
  struct Outgoing {
    int peer = 0;
    FrameHeader header;
    std::array<iovec, 2> iovecs;  // header, payload
    std::span<iovec> left;
  };
  // A frame that is received from a peer: into `text` if set, otherwise into `bytes`.
  struct Incoming {
    int peer = 0;
    std::string* text = nullptr;
    std::span<std::byte> bytes;
    std::size_t max_bytes = 0;
    FrameHeader header;
    std::size_t received = 0;  // bytes of header and payload
    bool complete = false;
  };

  bool advance();
  void wait();
  std::string waiting_for() const;
  bool advance(Outgoing& one);
  bool advance(Incoming& one);
  void open(Incoming& one);

  Mesh& mesh_;
  FrameKind kind_;
  MonotonicTime deadline_;
  std::uint64_t operation_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace tilewright::collectives
