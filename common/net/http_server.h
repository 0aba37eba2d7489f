// A small HTTP/1.1 server for probes and scrapes: answers GET requests for fixed paths, one per
// connection, from one thread.
//
// Any pod that can reach the port can open connections, so a connection must cost the others
// nothing: one that does not send its request or take its response in time is closed, and at the
// maximum number of connections a new one replaces the oldest.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "common/net/connect.h"

namespace tilewright::net {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// The content type of Prometheus' text format.
inline constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

struct HttpLimits {
  std::size_t max_connections = 128;
  std::size_t max_request_bytes = 8 << 10;
  Duration request_timeout = std::chrono::seconds(5);    // from the connection to the whole request
  Duration response_timeout = std::chrono::seconds(10);  // from there to the last byte
};

class HttpServer {
 public:
  // By path: "/metrics". Called from the server's thread.
  using Handlers = std::map<std::string, std::function<HttpResponse()>, std::less<>>;

  // Fails with kUsage if the address is not available.
  static Result<std::unique_ptr<HttpServer>> start(const Address& address, Handlers handlers,
                                                   HttpLimits limits = {});
  // Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The bound port, also if port 0 was requested.
  std::uint16_t port() const { return listener_.local_address().port; }

 private:
  struct Connection {
    Socket socket;
    std::string request;   // what has arrived
    std::string response;  // what remains to be sent; empty while the request is incomplete
    MonotonicTime deadline;
  };

  HttpServer(Listener listener, Handlers handlers, HttpLimits limits);
  void run();
  void accept_some();
  void drop_oldest();
  // Each returns false when the connection is done.
  bool advance(Connection& connection);
  bool read_request(Connection& connection);
  static bool write_response(Connection& connection);
  HttpResponse respond(std::string_view request) const;

  Listener listener_;
  const Handlers handlers_;
  const HttpLimits limits_;
  std::list<Connection> connections_;  // oldest first; used by the thread only
  MonotonicTime accept_after_{};       // later than now: accepting has failed
  WakeUp stop_;
  std::thread thread_;  // last member: it uses the others
};

}  // namespace tilewright::net
