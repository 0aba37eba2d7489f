#include "common/net/http_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewright::net {
namespace {

// Connections that wait for accept(2); the thread accepts them within microseconds.
constexpr int kBacklog = 256;
// Pause after accept(2) fails, most likely because file descriptors ran out.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

HttpResponse error_response(int status) {
  HttpResponse response;
  response.status = status;
  response.body = fmt::format("{}\n", reason_of(status));
  return response;
}

std::string serialize(const HttpResponse& response) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
      response.status, reason_of(response.status), response.content_type, response.body.size(),
      response.status == 405 ? "Allow: GET\r\n" : "", response.body);
}

// Makes the kernel discard what the peer has not taken, instead of keeping it for minutes.
void reset_on_close(const Socket& socket) {
  const linger now{1, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const Address& address, Handlers handlers,
                                                      HttpLimits limits) {
  Result<Listener> listener = Listener::bind(address, kBacklog);
  if (!listener) return listener.error();
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(listener).value(), std::move(handlers), limits));
}

HttpServer::HttpServer(Listener listener, Handlers handlers, HttpLimits limits)
    : listener_(std::move(listener)),
      handlers_(std::move(handlers)),
      limits_(limits),
      thread_([this] { run(); }) {}

HttpServer::~HttpServer() {
  stop_.signal();
  thread_.join();
}

void HttpServer::run() {
  std::vector<pollfd> polled;
  while (true) {
    const MonotonicTime start = monotonic_now();
    const bool accepting = accept_after_ <= start;
    MonotonicTime wake = accepting ? MonotonicTime::max() : accept_after_;
    polled = {{stop_.fd(), POLLIN, 0}, {accepting ? listener_.fd() : -1, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const short events = connection.response.empty() ? POLLIN : POLLOUT;
      polled.push_back({connection.socket.fd(), events, 0});
      wake = std::min(wake, connection.deadline);
    }
    poll(polled.data(), polled.size(), poll_timeout(wake, start));
    if (stop_.signalled()) return;
    // Reads before it judges the deadlines, so that a pause of this thread closes no connection
    // whose request has arrived.
    auto event = polled.begin() + 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++event) {
      const bool open = event->revents == 0 || advance(*it);
      const bool late = open && monotonic_now() >= it->deadline;
      if (late) reset_on_close(it->socket);
      it = open && !late ? std::next(it) : connections_.erase(it);
    }
    if (polled[1].revents != 0) accept_some();
  }
}

void HttpServer::accept_some() {
  const Status status = listener_.accept_some([this](Socket socket) {
    if (connections_.size() >= limits_.max_connections) drop_oldest();
    connections_.push_back({std::move(socket), "", "", monotonic_now() + limits_.request_timeout});
    // The request has usually arrived with the connection.
    if (!advance(connections_.back())) connections_.pop_back();
  });
  if (status.ok()) return;
  drop_oldest();
  accept_after_ = monotonic_now() + kAcceptPause;
}

void HttpServer::drop_oldest() {
  if (connections_.empty()) return;
  reset_on_close(connections_.front().socket);
  connections_.pop_front();
}

bool HttpServer::advance(Connection& connection) {
  if (connection.response.empty() && !read_request(connection)) return false;
  return connection.response.empty() || write_response(connection);
}

bool HttpServer::read_request(Connection& connection) {
  std::string& request = connection.request;
  std::array<char, 4096> buffer{};
  while (request.find(kEndOfHead) == std::string::npos &&
         request.size() <= limits_.max_request_bytes) {
    const Result<std::size_t> received =
        connection.socket.try_read(std::as_writable_bytes(std::span(buffer)));
    if (!received) return false;
    if (*received == 0) return true;
    request.append(buffer.data(), *received);
  }
  connection.response = serialize(respond(request));
  connection.deadline = monotonic_now() + limits_.response_timeout;
  return true;
}

bool HttpServer::write_response(Connection& connection) {
  std::string_view rest = connection.response;
  while (!rest.empty()) {
    const Result<std::size_t> sent = connection.socket.try_write(std::as_bytes(std::span(rest)));
    if (!sent) return false;
    if (*sent == 0) {
      connection.response.erase(0, connection.response.size() - rest.size());
      return true;
    }
    rest.remove_prefix(*sent);
  }
  return false;
}

HttpResponse HttpServer::respond(std::string_view request) const {
  if (request.size() > limits_.max_request_bytes) return error_response(431);
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const std::size_t method_end = line.find(' ');
  const std::size_t target_end = line.rfind(' ');
  if (method_end == target_end || !line.substr(target_end + 1).starts_with("HTTP/1.")) {
    return error_response(400);
  }
  if (line.substr(0, method_end) != "GET") return error_response(405);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const auto handler = handlers_.find(target.substr(0, target.find('?')));
  if (handler == handlers_.end()) return error_response(404);
  try {
    return handler->second();
  } catch (const std::exception&) {
    return error_response(500);
  }
}

}  // namespace tilewright::net
