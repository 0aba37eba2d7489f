#include "worker/collectives/exchange.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <limits>

#include "common/base/check.h"
#include "worker/collectives/spin.h"

namespace tilewright::collectives {
namespace {

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

// Sends and receives the frames of one operation. All transfers are non-blocking and run
// concurrently, so ranks cannot deadlock on the order of their sends.
class Exchange {
 public:
  Exchange(Mesh& mesh, FrameKind kind, MonotonicTime deadline)
      : mesh_(mesh), kind_(kind), deadline_(deadline), operation_(mesh.next_operation()) {
    out_.reserve(static_cast<std::size_t>(mesh.world()));  // iovecs point into the elements
  }

  void send(int peer, std::span<const std::byte> bytes) {
    Outgoing& one = out_.emplace_back();
    one.peer = peer;
    one.header.kind = kind_;
    one.header.operation = operation_;
    one.iovecs = {net::make_iovec(&one.header, sizeof one.header),
                  net::make_iovec(bytes.data(), bytes.size())};
    one.left = one.iovecs;
    mesh_.seal(peer, one.header, std::span(one.iovecs).subspan(1));
  }
  void receive(int peer, std::string* text, std::size_t max_bytes) {
    Incoming& one = in_.emplace_back();
    one.peer = peer;
    one.text = text;
    one.max_bytes = max_bytes;
  }
  void receive(int peer, std::span<std::byte> bytes) {
    Incoming& one = in_.emplace_back();
    one.peer = peer;
    one.bytes = bytes;
  }

  void run() {
    const MonotonicTime spin_end = monotonic_now() + kSpinTime;
    while (!advance()) {
      const MonotonicTime now = monotonic_now();
      if (now >= deadline_) {
        throw Failure(ExitCode::kPeerLost,
                      fmt::format("the {} in membership epoch {} is not finished by the deadline: "
                                  "waiting for {}",
                                  name_of(kind_), mesh_.epoch(), waiting_for()));
      }
      if (now < spin_end) {
        sched_yield();
      } else {
        wait();
      }
    }
  }

 private:
  // Transfers as much as possible without blocking; true when the operation is complete.
  bool advance() {
    mesh_.throw_if_aborted();
    bool complete = true;
    for (Outgoing& one : out_) complete = advance(one) && complete;
    for (Incoming& one : in_) complete = advance(one) && complete;
    return complete;
  }

  void wait() {
    std::vector<pollfd> fds{{mesh_.cancel_token().fd(), POLLIN, 0}};
    for (const Outgoing& one : out_) {
      // POLLRDHUP: a peer that closed the connection will not read the rest, even if the kernel
      // still accepts it.
      if (!one.left.empty()) mesh_.transport().watch(one.peer, POLLOUT | POLLRDHUP, fds);
    }
    for (const Incoming& one : in_) {
      if (!one.complete) mesh_.transport().watch(one.peer, POLLIN, fds);
    }
    mesh_.transport().wait(fds, deadline_);
  }

  std::string waiting_for() const {
    const auto receives = std::ranges::find(in_, false, &Incoming::complete);
    if (receives != in_.end()) return mesh_.name(receives->peer);
    return mesh_.name(
        std::ranges::find_if(out_, [](const Outgoing& one) { return !one.left.empty(); })->peer);
  }

  // Returns true when the whole frame is sent.
  bool advance(Outgoing& one) {
    while (!one.left.empty()) {
      const auto sent = mesh_.transport().try_write(one.peer, one.left);
      if (!sent.ok()) throw mesh_.lost(one.peer, "is lost: " + sent.error().message);
      one.left = net::advance(one.left, *sent);
      if (*sent == 0 && !one.left.empty()) return false;
    }
    return true;
  }

  // Returns true when the whole frame is received.
  bool advance(Incoming& one) {
    while (!one.complete) {
      std::span<std::byte> buffer = std::as_writable_bytes(std::span(&one.header, 1));
      if (one.received >= sizeof(FrameHeader)) {
        if (one.received == sizeof(FrameHeader)) open(one);
        const auto payload = one.text ? std::as_writable_bytes(std::span(*one.text)) : one.bytes;
        buffer = payload.subspan(one.received - sizeof(FrameHeader));
        if (buffer.empty()) {
          mesh_.check_payload(one.peer, one.header, payload);
          one.complete = true;
          break;
        }
      } else {
        buffer = buffer.subspan(one.received);
      }
      const auto received = mesh_.transport().try_read(one.peer, buffer);
      if (!received.ok()) throw mesh_.lost(one.peer, "is lost: " + received.error().message);
      if (*received == 0) return false;
      one.received += *received;
    }
    return true;
  }

  // Checks a complete header and allocates memory for the payload.
  void open(Incoming& one) {
    mesh_.check(one.peer, one.header, operation_);
    if (one.header.kind != kind_) {
      throw mesh_.lost(one.peer, fmt::format("sent a frame ({}), expected {}",
                                             name_of(one.header.kind), name_of(kind_)));
    }
    const std::size_t bytes = one.header.bytes;
    if (one.text) {
      if (bytes > one.max_bytes) {
        throw mesh_.lost(one.peer, fmt::format("sent {} bytes in a {}, expected at most {}", bytes,
                                               name_of(kind_), one.max_bytes));
      }
      one.text->resize(bytes);
    } else if (bytes != one.bytes.size()) {
      throw mesh_.lost(one.peer, fmt::format("sent {} bytes in a {}, expected {}", bytes,
                                             name_of(kind_), one.bytes.size()));
    }
  }

  Mesh& mesh_;
  FrameKind kind_;
  MonotonicTime deadline_;
  std::uint64_t operation_;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

}  // namespace

void barrier(Mesh& mesh, MonotonicTime deadline) {
  Exchange exchange(mesh, FrameKind::kBarrier, deadline);
  for (int peer = 0; peer < mesh.world(); ++peer) {
    if (peer == mesh.rank()) continue;
    exchange.send(peer, {});
    exchange.receive(peer, std::span<std::byte>());
  }
  exchange.run();
}

void broadcast(Mesh& mesh, int root, std::span<std::byte> bytes, MonotonicTime deadline) {
  Exchange exchange(mesh, FrameKind::kBroadcast, deadline);
  if (mesh.rank() != root) exchange.receive(root, bytes);
  for (int peer = 0; peer < mesh.world() && mesh.rank() == root; ++peer) {
    if (peer != root) exchange.send(peer, bytes);
  }
  exchange.run();
}

void copy_bytes(Mesh& mesh, std::span<const int> senders, std::span<const int> receivers,
                std::span<std::byte> bytes, MonotonicTime deadline) {
  // While a chunk is in transit, its sender computes the checksum of the next one.
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  const bool receives = std::ranges::find(receivers, mesh.rank()) != receivers.end();
  TW_CHECK(
      !senders.empty() && !(receives && std::ranges::find(senders, mesh.rank()) != senders.end()),
      "{} senders, and rank {} both sends and receives", senders.size(), mesh.rank());
  for (std::size_t at = 0; at < bytes.size();) {
    Exchange exchange(mesh, FrameKind::kBroadcast, deadline);
    for (const int sender : senders) {
      if (at == bytes.size()) break;
      const std::span chunk = bytes.subspan(at, std::min(kChunkBytes, bytes.size() - at));
      at += chunk.size();
      if (receives) exchange.receive(sender, chunk);
      if (mesh.rank() != sender) continue;
      for (const int receiver : receivers) exchange.send(receiver, chunk);
    }
    exchange.run();
  }
}

std::string broadcast_string(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                             MonotonicTime deadline) {
  Exchange exchange(mesh, FrameKind::kBroadcast, deadline);
  std::string result;
  if (mesh.rank() != root) {
    exchange.receive(root, &result, max_bytes);
  } else {
    result = text;
    for (int peer = 0; peer < mesh.world(); ++peer) {
      if (peer != root) exchange.send(peer, std::as_bytes(std::span(text)));
    }
  }
  exchange.run();
  return result;
}

std::vector<std::string> gather(Mesh& mesh, int root, std::string_view text, std::size_t max_bytes,
                                MonotonicTime deadline) {
  Exchange exchange(mesh, FrameKind::kGather, deadline);
  std::vector<std::string> result;
  if (mesh.rank() != root) {
    exchange.send(root, std::as_bytes(std::span(text)));
  } else {
    result.resize(static_cast<std::size_t>(mesh.world()));
    result[static_cast<std::size_t>(root)] = text;
    for (int peer = 0; peer < mesh.world(); ++peer) {
      if (peer != root) {
        exchange.receive(peer, &result[static_cast<std::size_t>(peer)], max_bytes);
      }
    }
  }
  exchange.run();
  return result;
}

std::vector<std::string> all_gather(Mesh& mesh, std::string_view text, std::size_t max_bytes,
                                    MonotonicTime deadline) {
  Exchange exchange(mesh, FrameKind::kGather, deadline);
  std::vector<std::string> result(static_cast<std::size_t>(mesh.world()));
  for (int peer = 0; peer < mesh.world(); ++peer) {
    if (peer == mesh.rank()) continue;
    exchange.send(peer, std::as_bytes(std::span(text)));
    exchange.receive(peer, &result[static_cast<std::size_t>(peer)], max_bytes);
  }
  exchange.run();
  result[static_cast<std::size_t>(mesh.rank())] = text;
  return result;
}

std::vector<std::vector<bool>> all_gather_bits(Mesh& mesh, const std::vector<bool>& bits,
                                               MonotonicTime deadline) {
  const auto world = static_cast<std::size_t>(mesh.world());
  std::string digits;
  for (const bool bit : bits) digits += bit ? '1' : '0';
  std::vector<std::vector<bool>> all;
  for (const std::string& row : all_gather(mesh, digits, world, deadline)) {
    if (row.size() != world || row.find_first_not_of("01") != std::string::npos) {
      throw mesh.lost(static_cast<int>(all.size()),
                      fmt::format("sent {} bytes, expected {} digits 0 or 1,", row.size(), world));
    }
    std::vector<bool>& one = all.emplace_back();
    for (const char digit : row) one.push_back(digit == '1');
  }
  return all;
}

}  // namespace tilewright::collectives
