// One connection of the server: requests in, replies out. It never blocks. Private to this module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/tcpstore/protocol.h"

namespace tilewright::tcpstore {

class Connection {
 public:
  Connection(net::Socket socket, net::Address address, MonotonicTime now)
      : opened(now), socket_(std::move(socket)), address_(std::move(address)) {}

  // Reads what one read returns. An Error ends the connection.
  Status read();
  // The next request; nullopt if none is complete, or if the client has not read the replies to the
  // earlier ones (kMaxUnreadBytes).
  Result<std::optional<Request>> next();
  void send(std::string_view reply) { output_ += reply; }
  // Sends as much as the socket accepts.
  Status write();

  int fd() const { return socket_.fd(); }
  const std::string& peer() const { return socket_.peer(); }
  const net::Address& address() const { return address_; }
  bool reads_replies() const { return output_.size() <= kMaxUnreadBytes; }
  // For epoll. `reading`: requests are welcome.
  std::uint32_t events(bool reading) const;
  std::size_t memory() const { return reader_.memory() + output_.capacity(); }

  const MonotonicTime opened;
  bool validated = false;     // its first request was a valid VALIDATE
  std::size_t accounted = 0;  // its share of the buffered bytes of its store

 private:
  static constexpr std::size_t kMaxUnreadBytes = 256 << 10;

  net::Socket socket_;
  const net::Address address_;
  RequestReader reader_;
  std::string output_;
};

}  // namespace tilewright::tcpstore
