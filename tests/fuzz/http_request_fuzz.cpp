#include <string>

#include "common/base/check.h"
#include "common/net/http_server.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"

namespace tilewright::fuzz {
namespace {

constexpr std::size_t kMaxRequest = 2048;

std::unique_ptr<net::HttpServer> start_server() {
  net::HttpLimits limits;
  limits.max_request_bytes = kMaxRequest;
  net::HttpServer::Handlers handlers;
  handlers["/metrics"] = [] { return net::HttpResponse{200, net::kPrometheusText, "up 1\n"}; };
  handlers["/healthz"] = [] { return net::HttpResponse{200, "text/plain", "ok\n"}; };
  handlers["/throws"] = []() -> net::HttpResponse { throw std::runtime_error("no"); };
  return net::HttpServer::start({"127.0.0.1", 0}, std::move(handlers), limits).or_throw();
}

// What the server answers until it closes the connection. The client closes its direction first,
// so that the server does not wait for the rest of a request.
std::string exchange(std::uint16_t port, std::string_view request) {
  const MonotonicTime deadline = monotonic_now() + kTimeout;
  net::Socket socket = net::connect_to({"127.0.0.1", port}, deadline).or_throw();
  // The server may close the connection before it has read everything.
  (void)socket.write_all(std::as_bytes(std::span(request)), deadline);
  socket.shutdown_write();
  std::string response;
  char byte = 0;
  while (socket.read_exact(std::as_writable_bytes(std::span(&byte, 1)), deadline).ok()) {
    response += byte;
  }
  TW_CHECK(monotonic_now() < deadline, "the server did not close the connection");
  return response;
}

}  // namespace

int fuzz_http_request(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<net::HttpServer> server = start_server();
  const std::string_view request = as_text(data, size);
  const std::string response = exchange(server->port(), request);
  const bool complete = request.find("\r\n\r\n") < kMaxRequest;
  if (complete && size <= kMaxRequest) {
    TW_CHECK(!response.empty(), "no response to a request");
  }
  if (response.empty()) return 0;
  TW_CHECK(response.starts_with("HTTP/1.1 "), "not a response: {}", response);
  const std::size_t head = response.find("\r\n\r\n");
  TW_CHECK(head != std::string::npos, "a response without an end of its head");
  const std::string length = fmt::format("Content-Length: {}\r\n", response.size() - head - 4);
  TW_CHECK(response.substr(0, head + 2).find(length) != std::string::npos, "a wrong length: {}",
           response);
  return 0;
}

}  // namespace tilewright::fuzz
