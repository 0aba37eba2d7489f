// Messages over a stream: a length of 4 bytes, little-endian, then that many bytes. The reader says
// how many it is willing to take.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/net/socket.h"

namespace tilewright::net {

inline constexpr std::size_t kMessagePrefixBytes = 4;

// The length prefix; a payload has less than 4 GiB.
std::string message_prefix(std::size_t payload_bytes);
// The length that a prefix announces; `prefix` has at least kMessagePrefixBytes bytes.
std::size_t message_length(std::string_view prefix);

Status write_message(Socket& socket, std::string_view payload, const Wait& wait);

// An Error, before anything is allocated, when the peer announces more than max_bytes.
Result<std::string> read_message(Socket& socket, std::size_t max_bytes, const Wait& wait);

// Cuts a stream into messages for poll loops: append() what came, then next() until it is empty.
class MessageReader {
 public:
  explicit MessageReader(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message, nothing when more bytes are needed, an Error when it would be too long.
  Result<std::optional<std::string>> next();
  // Bytes that came and belong to no message handed out yet.
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

 private:
  std::size_t max_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;
};

}  // namespace tilewright::net
