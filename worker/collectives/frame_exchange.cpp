#include "worker/collectives/frame_exchange.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "worker/collectives/spin.h"

namespace tilewright::collectives {

FrameExchange::FrameExchange(Mesh& mesh, FrameKind kind, std::uint64_t operation,
                             MonotonicTime deadline)
    : mesh_(mesh), kind_(kind), deadline_(deadline), operation_(operation) {
  out_.reserve(static_cast<std::size_t>(mesh.world()));  // iovecs point into the elements
}

void FrameExchange::send(int peer, std::span<const std::byte> bytes, std::uint64_t chunk) {
  Outgoing& one = out_.emplace_back();
  one.peer = peer;
  one.header.kind = kind_;
  one.header.operation = operation_;
  one.header.chunk = chunk;
  one.iovecs = {net::make_iovec(&one.header, sizeof one.header),
                net::make_iovec(bytes.data(), bytes.size())};
  one.left = one.iovecs;
  mesh_.seal(peer, one.header, std::span(one.iovecs).subspan(1));
}

void FrameExchange::receive(int peer, std::string* text, std::size_t max_bytes) {
  Incoming& one = in_.emplace_back();
  one.peer = peer;
  one.text = text;
  one.max_bytes = max_bytes;
}

void FrameExchange::receive(int peer, std::span<std::byte> bytes) {
  Incoming& one = in_.emplace_back();
  one.peer = peer;
  one.bytes = bytes;
}

void FrameExchange::run() {
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

// Transfers as much as possible without blocking; true when the operation is complete.
bool FrameExchange::advance() {
  mesh_.throw_if_aborted();
  bool complete = true;
  for (Outgoing& one : out_) complete = advance(one) && complete;
  for (Incoming& one : in_) complete = advance(one) && complete;
  return complete;
}

void FrameExchange::wait() {
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

std::string FrameExchange::waiting_for() const {
  const auto receives = std::ranges::find(in_, false, &Incoming::complete);
  if (receives != in_.end()) return mesh_.name(receives->peer);
  return mesh_.name(
      std::ranges::find_if(out_, [](const Outgoing& one) { return !one.left.empty(); })->peer);
}

// Returns true when the whole frame is sent.
bool FrameExchange::advance(Outgoing& one) {
  while (!one.left.empty()) {
    const auto sent = mesh_.transport().try_write(one.peer, one.left);
    if (!sent.ok()) throw mesh_.lost(one.peer, "is lost: " + sent.error().message);
    one.left = net::advance(one.left, *sent);
    if (*sent == 0 && !one.left.empty()) return false;
  }
  return true;
}

// Returns true when the whole frame is received.
bool FrameExchange::advance(Incoming& one) {
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
void FrameExchange::open(Incoming& one) {
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

}  // namespace tilewright::collectives
