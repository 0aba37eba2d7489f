// Messages over a stream: a 4-byte little-endian length, then the payload. The reader sets the
// maximum length.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/net/socket.h"

namespace tilewright::net {

inline constexpr std::size_t kMessagePrefixBytes = 4;

// The length prefix. The payload must be smaller than 4 GiB.
std::string message_prefix(std::size_t payload_bytes);
// The length that a prefix announces; `prefix` has at least kMessagePrefixBytes bytes.
std::size_t message_length(std::string_view prefix);

Status write_message(Socket& socket, std::string_view payload, const Wait& wait);

// Returns an Error, before any allocation, if the announced length exceeds max_bytes.
Result<std::string> read_message(Socket& socket, std::size_t max_bytes, const Wait& wait);

// Splits a stream into messages for poll loops: append() the bytes, then call next() until it
// returns nullopt.
class MessageReader {
 public:
  explicit MessageReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next complete message; nullopt if it needs more bytes; an Error if it is too long.
  Result<std::optional<std::string>> next();
  // Memory in use. next() returns what a long message needed.
  std::size_t capacity() const { return buffer_.capacity(); }
  // Bytes that next() has not returned yet.
  std::string_view remaining() const { return std::string_view(buffer_).substr(begin_); }

 private:
  std::size_t max_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace tilewright::net
