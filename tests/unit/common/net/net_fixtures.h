// A connected pair of loopback sockets, for the tests of common/net and of modules that use it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/net/connect.h"
#include "common/net/secret.h"
#include "common/net/socket.h"
#include "common/net/wait.h"

namespace tilewright::net {

// A generous deadline: it only ends a test that would otherwise hang.
inline Wait soon() { return within(std::chrono::seconds(60)); }

inline Listener loopback_listener() {
  return std::move(Listener::bind({"127.0.0.1", 0})).or_throw();
}

// Waits for the next connection.
inline Socket accept_from(Listener& listener) {
  if (wait_ready(listener.fd(), POLLIN, soon()) != Ready::kYes) {
    throw std::runtime_error("no connection to " + to_string(listener.local_address()));
  }
  return listener.try_accept().or_throw();
}

inline const std::string kSecret = "a secret of enough bytes";
inline SecretKey key_of(const std::string& text) { return SecretKey::from_bytes(text).or_throw(); }

struct Pair {
  Socket client, server;
};

inline Pair connected_pair() {
  Listener listener = loopback_listener();
  Socket client = connect_to(listener.local_address(), soon()).or_throw();
  return {std::move(client), accept_from(listener)};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Reads exactly `size` bytes as text.
inline std::string read_text(Socket& socket, std::size_t size) {
  std::string text(size, '\0');
  const auto status = socket.read_exact(std::as_writable_bytes(std::span(text)), soon());
  EXPECT_TRUE(status.ok()) << status.error().message;
  return text;
}

}  // namespace tilewright::net
