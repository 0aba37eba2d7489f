#include "common/net/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace tilewright::net {
namespace {

// A peer may announce more than it sends, so the buffer grows with the received bytes. This is the
// smallest increment.
constexpr std::size_t kGrowthBytes = 1 << 20;

// A reader keeps a buffer of this size between messages.
constexpr std::size_t kKeptBytes = 4 << 10;

std::string too_long(std::size_t length, std::size_t max_bytes) {
  return fmt::format("announced a message of {} bytes, at most {} are allowed", length, max_bytes);
}

}  // namespace

std::string message_prefix(std::size_t payload_bytes) {
  TW_CHECK(payload_bytes <= UINT32_MAX, "a message of {} bytes", payload_bytes);
  std::string prefix(kMessagePrefixBytes, '\0');
  for (std::size_t i = 0; i < kMessagePrefixBytes; ++i) {
    prefix[i] = static_cast<char>(payload_bytes >> (8 * i) & 0xff);
  }
  return prefix;
}

std::size_t message_length(std::string_view prefix) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kMessagePrefixBytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(prefix[i])) << (8 * i);
  }
  return length;
}

Status write_message(Socket& socket, std::string_view payload, const Wait& wait) {
  const std::string prefix = message_prefix(payload.size());
  iovec buffers[] = {make_iovec(prefix.data(), prefix.size()),
                     make_iovec(payload.data(), payload.size())};
  return socket.write_all(buffers, wait);
}

Result<std::string> read_message(Socket& socket, std::size_t max_bytes, const Wait& wait) {
  std::string prefix(kMessagePrefixBytes, '\0');
  if (auto status = socket.read_exact(std::as_writable_bytes(std::span(prefix)), wait);
      !status.ok()) {
    return status.error();
  }
  const std::size_t length = message_length(prefix);
  if (length > max_bytes) {
    return Error{ExitCode::kPeerLost,
                 fmt::format("{} {}", socket.peer(), too_long(length, max_bytes))};
  }
  std::string payload;
  while (payload.size() < length) {
    const std::size_t begin = payload.size();
    payload.resize(std::min(length, begin + std::max(begin, kGrowthBytes)));
    if (auto status =
            socket.read_exact(std::as_writable_bytes(std::span(payload).subspan(begin)), wait);
        !status.ok()) {
      return status.error();
    }
  }
  return payload;
}

Result<std::optional<std::string>> MessageReader::next() {
  const std::string_view bytes = remaining();
  if (bytes.size() >= kMessagePrefixBytes) {
    const std::size_t length = message_length(bytes);
    if (length > max_bytes_) {
      return Error{ExitCode::kPeerLost, "the peer " + too_long(length, max_bytes_)};
    }
    if (bytes.size() >= kMessagePrefixBytes + length) {
      std::string payload(bytes.substr(kMessagePrefixBytes, length));
      begin_ += kMessagePrefixBytes + length;
      return std::optional(std::move(payload));
    }
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  if (buffer_.empty() && buffer_.capacity() > kKeptBytes) buffer_.shrink_to_fit();
  return std::optional<std::string>();
}

}  // namespace tilewright::net
