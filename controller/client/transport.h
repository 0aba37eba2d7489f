// HTTP requests to the API server with deadlines and cancellation. transport.cpp implements this
// interface with cpprestsdk and is the only file that includes that library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/net/wait.h"
#include "controller/client/config.h"

namespace tilewright::kube {

// Starts cpprestsdk's global thread pool with a single thread, unless it is running already. One
// thread is enough: it only moves bytes, while callers build requests and parse responses. More
// than one is unsafe: cancelling a request closes a socket that another thread of the pool may be
// reading from. Transport calls this function; main may call it earlier.
void start_http_thread();

struct HttpRequest {
  std::string method;
  std::string target;  // path and query, encoded
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<std::string> body;
  std::uint64_t max_response_bytes = 64 << 20;
  // The reader needs the whole body: wake it once, at the end of the response.
  bool whole = false;
};

struct HttpHead {
  int status = 0;
  std::optional<Duration> retry_after;
};

// Why there is no complete response.
struct HttpFailure {
  enum class Kind {
    kTimedOut,
    kCancelled,
    kBroken,    // connection refused or reset, TLS, DNS, an incomplete response
    kTooLarge,  // more than max_response_bytes
  };
  Kind kind = Kind::kBroken;
  std::string message;
  bool maybe_received = false;  // the server may have received the whole request
};

// A request in flight and its response. Not thread-safe. Destroying it before the end of the
// response closes the connection.
class Exchange {
 public:
  struct State;
  Exchange(std::shared_ptr<State> state, Clock& clock);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Waits for status and headers; if HttpRequest::whole is set, for the whole response.
  std::variant<HttpHead, HttpFailure> head(const net::Wait& wait);

  struct End {};
  // Waits for the next bytes of the body. Returns End only after the complete body: a chunked body
  // that ends without its last chunk is a failure.
  std::variant<std::string, End, HttpFailure> read(const net::Wait& wait);

 private:
  // The failure if `wait` ended first; nullopt if the state has changed.
  std::optional<HttpFailure> await_change(const net::Wait& wait, const char* waiting_for);

  const std::shared_ptr<State> state_;
  Clock& clock_;
};

// Thread-safe. Connections are reused; there is one per concurrent request.
class Transport {
 public:
  // Fails with kUsage if a CA certificate, client certificate or key is unusable. `clock` decides
  // whether a deadline has passed, beside the system's clock; it must outlive the transport.
  static Result<std::unique_ptr<Transport>> make(const ClusterConfig& config, Clock& clock);
  ~Transport();

  // Does not block. cpprestsdk may resend a request without a body if a reused connection turns out
  // to be closed; it never resends one with a body.
  std::unique_ptr<Exchange> send(HttpRequest request);

  // Later requests use new connections with the current certificates. Requests in flight continue.
  void renew_connections();

 private:
  struct Impl;
  Transport(std::shared_ptr<Impl> impl, Clock& clock) : impl_(std::move(impl)), clock_(clock) {}
  std::shared_ptr<Impl> impl_;
  Clock& clock_;
};

}  // namespace tilewright::kube
