#include "worker/collectives/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "worker/collectives/crc32c.h"

namespace tilewright::collectives {

std::unique_ptr<Mesh> Mesh::single_rank() {
  MeshConfig config;
  config.peers.resize(1);
  return std::make_unique<Mesh>(std::move(config), std::make_unique<PeerTransport>(1));
}

std::string Mesh::name(int peer) const {
  return fmt::format("rank {} ({})", peer,
                     net::to_string(config_.peers[static_cast<std::size_t>(peer)].address));
}

std::string Mesh::links() const {
  const std::string& own_host = config_.peers[static_cast<std::size_t>(rank())].address.host;
  int sharing = 0;
  int separated = 0;  // have this rank's address, but share no memory
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    if (transport_->shares_memory(peer)) {
      ++sharing;
    } else if (config_.peers[static_cast<std::size_t>(peer)].address.host == own_host) {
      ++separated;
    }
  }
  const int others = world() - 1 - sharing;
  if (others == 0) return "through shared memory";
  std::string text = sharing == 0
                         ? "over TCP"
                         : fmt::format("through shared memory with {} rank{}, over TCP with {}",
                                       sharing, sharing == 1 ? "" : "s", others);
  if (separated > 0 && config_.shared_memory == SharedMemory::kIfPossible) {
    text +=
        fmt::format(" ({} with this rank's address share{} no memory; --ddp_backend=shm says why)",
                    separated, separated == 1 ? "s" : "");
  }
  return text;
}

void Mesh::add_stream(std::unique_ptr<Mesh> stream) {
  const std::lock_guard lock(abort_mutex_);
  if (!reason_.empty()) stream->abort(reason_);
  streams_.push_back(std::move(stream));
}

void Mesh::set_background(std::unique_ptr<Mesh> stream) {
  const std::lock_guard lock(abort_mutex_);
  if (!reason_.empty()) stream->abort(reason_);
  background_ = std::move(stream);
}

void Mesh::abort(const std::string& reason) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason given" : reason;
    for (const auto& stream : streams_) stream->abort(reason_);
    if (background_) background_->abort(reason_);
  }
  cancel_token_.signal();
}

void Mesh::throw_if_aborted() const {
  if (!cancel_token_.signalled()) return;
  const std::lock_guard lock(abort_mutex_);
  throw Failure(
      ExitCode::kPeerLost,
      fmt::format("the exchange in membership epoch {} was aborted: {}", epoch(), reason_));
}

Failure Mesh::lost(int peer, const std::string& what) const {
  return {ExitCode::kPeerLost, fmt::format("{} {} in membership epoch {} (this is rank {})",
                                           name(peer), what, epoch(), rank())};
}

void Mesh::send_abort(int peer, bool frame_in_flight, std::string_view reason) {
  if (frame_in_flight) return transport_->send_last(peer, {});
  reason = reason.substr(0, FrameHeader::kMaxReason);
  FrameHeader header;
  header.kind = FrameKind::kAbort;
  std::array<iovec, 2> iovecs{net::make_iovec(&header, sizeof header),
                              net::make_iovec(reason.data(), reason.size())};
  seal(peer, header, std::span(iovecs).subspan(1));
  transport_->send_last(peer, iovecs);
}

Failure Mesh::read_abort_reason(int peer, const FrameHeader& header) {
  // The reason arrives with the header; the limit is for a peer that violates the protocol.
  constexpr auto kLimit = std::chrono::seconds(1);
  std::string reason(std::min<std::size_t>(header.bytes, FrameHeader::kMaxReason), ' ');
  const MonotonicTime deadline = monotonic_now() + kLimit;
  std::span<std::byte> left = std::as_writable_bytes(std::span(reason));
  std::vector<pollfd> fds;
  while (!left.empty()) {
    const auto got = transport_->try_read(peer, left);
    if (!got.ok()) return lost(peer, "aborted and is lost: " + got.error().message);
    left = left.subspan(*got);
    if (*got > 0) continue;
    if (monotonic_now() >= deadline) return lost(peer, "aborted and sent no reason");
    fds.clear();
    transport_->watch(peer, POLLIN, fds);
    transport_->wait(fds, deadline);
  }
  std::ranges::replace_if(
      reason, [](unsigned char c) { return c < ' '; }, '?');  // the reason is written to a log
  return {ExitCode::kPeerLost, fmt::format("rank {} in membership epoch {}: {} aborted: {}", rank(),
                                           epoch(), name(peer), reason)};
}

void Mesh::seal(int peer, FrameHeader& header, std::span<const iovec> payload) const {
  header.epoch = epoch();
  collectives::seal(header, payload, transport_->detects_changes(peer));
}

void Mesh::check(int peer, const FrameHeader& header, std::uint64_t operation) {
  if (header.magic != FrameHeader::kMagic) {
    throw lost(peer, "sent bytes that are not a frame");
  }
  if (!header_is_intact(header)) {
    throw lost(peer,
               "sent a frame header that does not match its checksum: it was altered on the "
               "way,");
  }
  if (header.epoch != epoch()) {
    throw lost(peer, fmt::format("sent a frame of membership epoch {}", header.epoch));
  }
  if (header.kind == FrameKind::kAbort) throw read_abort_reason(peer, header);
  if (header.operation != operation) {
    throw lost(peer, fmt::format("sent a {} frame of operation {}, expected operation {}: the "
                                 "ranks call different operations",
                                 name_of(header.kind), header.operation, operation));
  }
}

void Mesh::check_payload(int peer, const FrameHeader& header,
                         std::span<const std::byte> payload) const {
  if (transport_->detects_changes(peer)) return;
  if (crc32c(payload) == header.payload_crc) return;
  throw lost(peer, fmt::format("sent {} bytes of {} that do not match their checksum: they were "
                               "altered on the way,",
                               payload.size(), name_of(header.kind)));
}

}  // namespace tilewright::collectives
