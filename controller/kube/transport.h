// One HTTP request at a time to the API server, with our deadlines and cancellation around
// cpprestsdk; nothing of that library shows in this header.
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
#include "controller/kube/config.h"

namespace tilewright::kube {

// Starts cpprestsdk's thread pool, the one global of this program, with a single thread, unless it
// runs already. One thread is enough, because it only moves bytes and requests are built and
// answers parsed by their callers, and it must be one: cpprestsdk's cancellation closes a socket
// that another thread of its pool may be reading from. Called by Transport; a main may call it
// earlier.
void start_http_thread();

struct HttpRequest {
  std::string method;
  std::string target;  // path and query, encoded
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<std::string> body;
  std::uint64_t max_answer_bytes = 64 << 20;
  // Whoever reads the answer can do nothing with a part of it, and is woken once, at its end.
  bool whole = false;
};

struct HttpHead {
  int status = 0;
  std::optional<Duration> retry_after;
};

// Why there is no (whole) answer.
struct HttpFailure {
  enum class Kind {
    kTimedOut,
    kCancelled,
    kBroken,    // refused, reset, TLS, DNS, an answer cut short
    kTooLarge,  // more than max_answer_bytes
  };
  Kind kind = Kind::kBroken;
  std::string message;
  bool maybe_received = false;  // the server may have got the whole request
};

// A request on its way and the answer as it comes. For one thread; dropped before the answer's end
// it closes its connection.
class Exchange {
 public:
  struct State;
  explicit Exchange(std::shared_ptr<State> state);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Waits for status and headers; of an answer that is wanted whole, for all of it.
  std::variant<HttpHead, HttpFailure> head(const net::Wait& wait);

  struct End {};
  // Waits for the next bytes of the body, in whatever pieces they come. End only after the whole
  // body as its framing says: a chunked one that stops without its last chunk is a failure.
  std::variant<std::string, End, HttpFailure> read(const net::Wait& wait);

 private:
  HttpFailure abandoned(net::Ready why, const char* waiting_for);

  const std::shared_ptr<State> state_;
};

// Thread-safe. Connections are kept and used again; there are as many as requests at once.
class Transport {
 public:
  // Errors carry kUsage: an authority, certificate or key that cannot be used.
  static Result<std::unique_ptr<Transport>> make(const ClusterConfig& config);
  ~Transport();

  // Does not block. A request with a body is never sent twice by itself; one without may be, when a
  // kept connection turns out to be closed.
  std::unique_ptr<Exchange> send(HttpRequest request);

  // What is sent from now on goes over new connections, with the certificates of now; requests
  // under way are left alone.
  void renew_connections();

 private:
  struct Impl;
  explicit Transport(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace tilewright::kube
