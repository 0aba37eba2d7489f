// A client of a TCPStore for tests: sends requests and reads exactly as many bytes as the test
// expects.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/net/socket.h"
#include "common/tcpstore/protocol.h"
#include "tests/support/tcpstore_request.h"

namespace tilewright::testing {

class TcpStoreClient {
 public:
  static constexpr std::chrono::seconds kTimeout{60};

  // `from`: the local address, by which the server selects the store.
  explicit TcpStoreClient(const net::Address& server, const std::string& from = "127.0.0.1")
      : socket_(connect(server, from)) {}

  void send(std::string_view bytes) {
    // The server may have closed the connection, which receive() and closed() show.
    (void)socket_.write_all(std::as_bytes(std::span(bytes)), net::within(kTimeout)).ok();
  }
  void send(const tcpstore::Request& request) { send(encode(request)); }
  // What has arrived when the connection closes, or a test failure, is shorter.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    const Status status =
        socket_.read_exact(std::as_writable_bytes(std::span(bytes)), net::within(kTimeout));
    if (status.ok()) return bytes;
    ADD_FAILURE() << "expected a reply of " << size << " bytes: " << status.error().message;
    return "";
  }
  std::string receive_string() { return receive(static_cast<std::size_t>(receive_number())); }
  std::int64_t receive_number() {
    std::int64_t number = 0;
    const std::string bytes = receive(sizeof number);
    if (bytes.size() == sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  // Whether the server closes the connection, with or without bytes before.
  bool closed() {
    std::array<std::byte, 4096> ignored;
    const net::Wait wait = net::within(kTimeout);
    while (net::wait_ready(socket_.fd(), POLLIN, wait) == net::Ready::kYes) {
      if (!socket_.try_read(ignored).ok()) return true;
    }
    return false;
  }
  bool readable(Duration within) const {
    return net::wait_ready(socket_.fd(), POLLIN, net::within(within)) == net::Ready::kYes;
  }

  void validate() {
    send({.operation = tcpstore::Operation::kValidate, .number = tcpstore::kMagic});
  }
  // Returns once the server has carried out everything that was sent before.
  void ping() {
    send({.operation = tcpstore::Operation::kPing, .number = 7});
    EXPECT_EQ(receive(4), std::string("\7\0\0\0", 4));
  }
  void set(const std::string& key, const std::string& value) {
    send({.operation = tcpstore::Operation::kSet, .keys = {key}, .values = {value}});
  }
  std::string get(const std::string& key) {
    send({.operation = tcpstore::Operation::kGet, .keys = {key}});
    return receive_string();
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) {
    send({.operation = tcpstore::Operation::kCompareSet,
          .keys = {key},
          .values = {expected, desired}});
    return receive_string();
  }
  std::int64_t add(const std::string& key, std::int64_t delta) {
    send({.operation = tcpstore::Operation::kAdd, .keys = {key}, .number = delta});
    return receive_number();
  }
  std::int64_t number_of_keys() {
    send({.operation = tcpstore::Operation::kGetNumKeys});
    return receive_number();
  }
  void start_wait(const std::vector<std::string>& keys) {
    send({.operation = tcpstore::Operation::kWait, .keys = keys});
  }
  void expect_wait_ended() { EXPECT_EQ(receive(1), std::string(1, tcpstore::kStopWaiting)); }

 private:
  static net::Socket connect(const net::Address& server, const std::string& from) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in local = ipv4(from, 0), remote = ipv4("127.0.0.1", server.port);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&local), sizeof local) != 0 ||
        ::connect(fd.get(), reinterpret_cast<sockaddr*>(&remote), sizeof remote) != 0)
      throw std::runtime_error("cannot connect from " + from + ": " + std::strerror(errno));
    return net::Socket(std::move(fd));
  }
  static sockaddr_in ipv4(const std::string& host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    return address;
  }

  net::Socket socket_;
};

}  // namespace tilewright::testing
