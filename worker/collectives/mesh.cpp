#include "worker/collectives/mesh.h"

#include <fmt/format.h>

namespace tilewright::collectives {

std::unique_ptr<Mesh> Mesh::alone() {
  MeshConfig config;
  config.peers.resize(1);
  return std::unique_ptr<Mesh>(new Mesh(std::move(config), std::vector<net::Socket>(1)));
}

std::string Mesh::name(int peer) const {
  return fmt::format("rank {} ({})", peer,
                     net::to_string(config_.peers[static_cast<std::size_t>(peer)]));
}

void Mesh::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason given" : reason;
  }
  bell_.signal();
}

void Mesh::throw_if_aborted() const {
  if (!bell_.signalled()) return;
  const std::lock_guard lock(reason_mutex_);
  throw Failure(ExitCode::kPeerLost,
                fmt::format("the exchange of epoch {} was aborted: {}", epoch(), reason_));
}

Failure Mesh::lost(int peer, const std::string& what) const {
  return {ExitCode::kPeerLost,
          fmt::format("{} {} in epoch {} (this is rank {})", name(peer), what, epoch(), rank())};
}

void Mesh::check(int peer, const FrameHeader& header, std::uint64_t operation) const {
  if (header.magic != FrameHeader::kMagic) {
    throw lost(peer, "sent bytes that are no frame");
  }
  if (header.epoch != epoch()) {
    throw lost(peer, fmt::format("sent a frame of epoch {}, which is refused", header.epoch));
  }
  if (header.operation != operation) {
    throw lost(peer, fmt::format("sent a frame ({}) of operation {}, expected operation {}: the "
                                 "ranks do not do the same things in the same order",
                                 name_of(header.kind), header.operation, operation));
  }
}

}  // namespace tilewright::collectives
