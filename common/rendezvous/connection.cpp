#include "common/rendezvous/connection.h"

#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <utility>

namespace tilewright::rendezvous {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// The connection closes if its output queue exceeds this size, which is many times that of an
// assignment of kMaxWorld peers.
constexpr std::size_t kMaxOutputBytes = 8 << 20;

}  // namespace

Connection::Connection(net::Socket socket, MonotonicTime now, net::FindTlsKey find_tls_key)
    : opened(now), socket_(std::move(socket)), find_tls_key_(std::move(find_tls_key)) {}

std::uint32_t Connection::events() const {
  // epoll and poll use the same bits.
  static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT);
  return static_cast<std::uint32_t>(
      socket_.poll_events(static_cast<short>(POLLIN | (wants_to_write() ? POLLOUT : 0))));
}

Status Connection::read(const FindKey& find_key, std::vector<std::string>& messages) {
  std::array<std::byte, kReadBytes> buffer;
  do {
    const Result<std::size_t> got = socket_.try_read(buffer);
    if (!got.ok()) return got.error();
    if (*got == 0 || close_deadline) return {};
    const std::string_view bytes(reinterpret_cast<const char*>(buffer.data()), *got);
    if (Status status = take_bytes(bytes, find_key, messages); !status.ok()) return status;
  } while (socket_.buffered());
  return {};
}

Status Connection::take_bytes(std::string_view bytes, const FindKey& find_key,
                              std::vector<std::string>& messages) {
  if (stage_ == Stage::kAuthenticated) {
    reader_.append(bytes);
  } else {
    input_.append(bytes);
  }
  // A hello begins with its length, which never equals the first two bytes of TLS.
  static_assert(kMaxHelloBytes < 0x0316);
  if (find_tls_key_ && input_.size() >= 2) {
    net::FindTlsKey find = std::exchange(find_tls_key_, {});
    if (net::is_tls_hello(input_)) {
      socket_.accept_tls(std::move(find), std::exchange(input_, {}));
      return {};
    }
  }
  return take_input(find_key, messages);
}

std::optional<std::string> Connection::take(std::size_t size) {
  if (input_.size() < size) return std::nullopt;
  std::string taken = input_.substr(0, size);
  input_.erase(0, size);
  return taken;
}

Status Connection::take_input(const FindKey& find_key, std::vector<std::string>& messages) {
  if (stage_ == Stage::kHello) {
    net::MessageReader reader(kMaxHelloBytes);
    reader.append(input_);
    auto hello = reader.next();
    if (!hello.ok()) return hello.error();
    if (!hello->has_value()) return {};
    input_ = reader.remaining();
    Result<Hello> decoded = decode_hello(**hello);
    if (!decoded.ok()) return decoded.error();
    hello_ = std::move(decoded).value();
    // An unknown job gets a random key, so that only peers with the secret learn which jobs exist.
    const net::SecretKey* key = find_key(job_uid());
    handshake_.emplace(net::Role::kServer, key != nullptr ? key->clone() : net::SecretKey::random(),
                       proof_context(job_uid()));
    output_.append(handshake_->take_output());
    stage_ = Stage::kAuthenticating;
  }
  while (stage_ == Stage::kAuthenticating) {
    const std::optional<std::string> bytes = take(handshake_->wanted());
    if (!bytes) return {};
    if (Status status = handshake_->feed(*bytes); !status.ok()) return status;
    output_.append(handshake_->take_output());
    if (!handshake_->complete()) continue;
    handshake_.reset();
    stage_ = Stage::kAuthenticated;
    reader_.append(std::exchange(input_, {}));
  }
  while (true) {
    auto message = reader_.next();
    if (!message.ok()) return message.error();
    if (!message->has_value()) return {};
    messages.push_back(std::move(**message));
  }
}

Status Connection::write() {
  while (!output_.empty()) {
    const Result<std::size_t> sent = socket_.try_write(std::as_bytes(std::span(output_.front())));
    if (!sent.ok()) return sent.error();
    if (*sent == 0) break;
    output_.remove(*sent);
  }
  if (output_.size() > kMaxOutputBytes)
    return Error{ExitCode::kPeerLost, socket_.peer() + " does not read its messages"};
  return {};
}

void Connection::reject(const std::string& reason) {
  // A string to which an empty one is assigned keeps its memory.
  input_.clear();
  input_.shrink_to_fit();
  net::MessageReader empty(kMaxMessageBytes);
  std::swap(reader_, empty);
  // A peer that does not read its messages would not read the reason either.
  if (write().ok() && output_.empty()) {
    send(Unavailable{reason});
  } else {
    output_.clear();
  }
}

void Connection::send(const ServerMessage& message) {
  const std::string payload = encode(message);
  output_.append(net::message_prefix(payload.size()));
  output_.append(payload);
}

void Connection::send(const EncodedAssignment& assignment, const SharedText& peers) {
  output_.append(
      net::message_prefix(assignment.before.size() + peers->size() + assignment.after.size()));
  output_.append(assignment.before);
  output_.append(peers);
  output_.append(assignment.after);
}

}  // namespace tilewright::rendezvous
