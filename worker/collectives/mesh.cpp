#include "worker/collectives/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

void Mesh::give_up(int peer, bool frame_under_way, std::string_view reason) {
  if (!frame_under_way) {
    reason = reason.substr(0, FrameHeader::kMaxReason);
    FrameHeader header;
    header.kind = FrameKind::kGivenUp;
    header.epoch = epoch();
    header.bytes = reason.size();
    std::array<iovec, 2> pieces{net::piece(&header, sizeof header),
                                net::piece(reason.data(), reason.size())};
    (void)socket(peer).try_write(pieces);  // a peer that takes no word sees the end of the stream
  }
  socket(peer).shutdown_write();
}

Failure Mesh::told(int peer, const FrameHeader& header) {
  // The reason came with the header; the limit is for a peer that does not keep to the protocol.
  constexpr auto kLimit = std::chrono::seconds(1);
  std::string reason(std::min<std::size_t>(header.bytes, FrameHeader::kMaxReason), ' ');
  const auto status =
      socket(peer).read_exact(std::as_writable_bytes(std::span(reason)), monotonic_now() + kLimit);
  if (!status.ok()) return lost(peer, "gave up and is lost: " + status.error().message);
  std::ranges::replace_if(
      reason, [](unsigned char c) { return c < ' '; }, '?');  // it goes to a log
  return {ExitCode::kPeerLost, fmt::format("rank {} of epoch {} is told by {}: {}", rank(), epoch(),
                                           name(peer), reason)};
}

void Mesh::check(int peer, const FrameHeader& header, std::uint64_t operation) {
  if (header.magic != FrameHeader::kMagic) {
    throw lost(peer, "sent bytes that are no frame");
  }
  if (header.epoch != epoch()) {
    throw lost(peer, fmt::format("sent a frame of epoch {}, which is refused", header.epoch));
  }
  if (header.kind == FrameKind::kGivenUp) throw told(peer, header);
  if (header.operation != operation) {
    throw lost(peer, fmt::format("sent a frame ({}) of operation {}, expected operation {}: the "
                                 "ranks do not do the same things in the same order",
                                 name_of(header.kind), header.operation, operation));
  }
}

}  // namespace tilewright::collectives
