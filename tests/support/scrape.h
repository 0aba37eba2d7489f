// Scrapes the metrics of a program on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/net/connect.h"

namespace tilewright::testing {

// The answer to GET /metrics, with its header.
inline std::string scrape(std::uint16_t port, const std::string& host = "127.0.0.1") {
  const net::Wait wait = net::within(std::chrono::seconds(30));
  net::Socket socket = net::connect_to({host, port}, wait).or_throw();
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: worker\r\n\r\n";
  socket.write_all(std::as_bytes(std::span(request)), wait).or_throw();
  std::string answer;
  std::byte one{};
  while (!answer.ends_with("\r\n\r\n")) {
    socket.read_exact(std::span(&one, 1), wait).or_throw();
    answer += static_cast<char>(one);
  }
  const std::string header = "Content-Length: ";
  std::string body(std::stoul(answer.substr(answer.find(header) + header.size())), ' ');
  socket.read_exact(std::as_writable_bytes(std::span(body)), wait).or_throw();
  return answer + body;
}

}  // namespace tilewright::testing
