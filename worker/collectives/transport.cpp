#include "worker/collectives/transport.h"

#include <algorithm>
#include <array>

#include "common/net/wait.h"

namespace tilewright::collectives {
namespace {

constexpr std::byte kSignal{1};

}  // namespace

void PeerTransport::wake_peer_if_needed(Link& link) {
  // If the connection takes no byte, earlier ones are unread and wake the peer.
  if (link.memory->wakes_peer()) (void)link.socket.try_write(std::span(&kSignal, 1));
}

// Reads the bytes that have woken this end.
void PeerTransport::read_signals(Link& link) {
  std::array<std::byte, 64> signals;
  const auto got = link.socket.try_read(signals);
  if (!got.ok()) link.ended = got.error();
  link.signalled = got.ok() && *got == signals.size();
}

Result<std::size_t> PeerTransport::try_read(int peer, std::span<std::byte> bytes) {
  Link& one = link(peer);
  if (!one.memory) return one.socket.try_read(bytes);
  if (one.signalled) read_signals(one);  // first: what the peer wrote before its end is in the ring
  auto got = one.memory->read(bytes);
  if (!got.ok()) return got;
  if (*got > 0) {
    wake_peer_if_needed(one);
  } else if (one.ended && !bytes.empty()) {
    return *one.ended;
  }
  return got;
}

Result<std::size_t> PeerTransport::try_write(int peer, std::span<iovec> buffers) {
  Link& one = link(peer);
  if (!one.memory) return one.socket.try_write(buffers);
  if (one.signalled) read_signals(one);
  if (one.ended) {
    // As with TCP, a peer that has left takes bytes until its last message is read.
    if (one.memory->readable() == 0) return *one.ended;
    std::size_t total = 0;
    for (const iovec& buffer : buffers) total += buffer.iov_len;
    return total;
  }
  auto sent = one.memory->write(buffers);
  if (sent.ok() && *sent > 0) wake_peer_if_needed(one);
  return sent;
}

void PeerTransport::send_last(int peer, std::span<iovec> buffers) {
  Link& one = link(peer);
  if (!buffers.empty() && !one.memory) {
    (void)one.socket.try_write(buffers);  // the peer also sees the end
  } else if (!buffers.empty()) {
    std::size_t total = 0;
    for (const iovec& buffer : buffers) total += buffer.iov_len;
    if (one.memory->writable() >= total) (void)one.memory->write(buffers);
  }
  one.socket.shutdown_write();
}

void PeerTransport::watch(int peer, short events, std::vector<pollfd>& fds) {
  Link& one = link(peer);
  if (!one.memory) {
    fds.push_back({one.socket.fd(), one.socket.poll_events(events), 0});
    return;
  }
  if ((events & POLLIN) != 0) one.awaited |= SharedMemoryLink::kInput;
  if ((events & POLLOUT) != 0) one.awaited |= SharedMemoryLink::kSpace;
  watch_idle(peer, fds);
}

void PeerTransport::watch_idle(int peer, std::vector<pollfd>& fds) const {
  const net::Socket& socket = link(peer).socket;
  fds.push_back({socket.fd(), socket.poll_events(POLLIN), 0});
}

void PeerTransport::note_ready(std::span<const pollfd> fds) {
  for (Link& one : links_) {
    if (!one.memory || one.signalled) continue;
    one.signalled = std::ranges::any_of(fds, [&](const pollfd& entry) {
      return entry.fd == one.socket.fd() && entry.revents != 0;
    });
  }
}

// Announces what all links await; false if one of the events has happened.
bool PeerTransport::may_sleep() {
  return std::ranges::all_of(links_, [](Link& one) {
    return !one.memory || one.awaited == SharedMemoryLink::kNothing ||
           one.memory->sleep_until(one.awaited);
  });
}

void PeerTransport::wait(std::vector<pollfd>& fds, MonotonicTime deadline) {
  if (may_sleep()) {
    poll(fds.data(), fds.size(), net::poll_timeout(deadline));
    note_ready(fds);
  }
  for (Link& one : links_) {
    if (!one.memory || one.awaited == SharedMemoryLink::kNothing) continue;
    one.memory->wake();
    one.awaited = SharedMemoryLink::kNothing;
  }
}

}  // namespace tilewright::collectives
