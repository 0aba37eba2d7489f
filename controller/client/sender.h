// Sends a request with credentials, write fencing, retries and request counting, for all verbs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "controller/client/api_error.h"
#include "controller/client/jitter.h"
#include "controller/client/request_counter.h"
#include "controller/client/retry.h"
#include "controller/client/transport.h"
#include "controller/client/write_guard.h"

namespace tilewright::kube {

struct ApiRequest;

struct SenderOptions {
  RetryPolicy retry;
  // Limit for one attempt, so that a dead connection leaves time for another attempt.
  Duration attempt_timeout = std::chrono::seconds(15);
  std::string user_agent = "tilewright";
  Clock* clock = &system_clock();  // for attempt_timeout, write guards and idle watches
  Jitter jitter = random_jitter();
  // For tests: called before and after every attempt of every write. before_write is called after
  // the guard has permitted the write.
  std::function<void(const ApiRequest&)> before_write, after_write;
};

struct ApiRequest {
  std::string verb;       // for the counter: get, list, watch, create, update, patch, delete
  std::string resource;   // pods, trainjobs/status, pods/eviction
  std::string operation;  // for messages: "create pods default/mrpc-worker-0"
  HttpRequest http;
  std::string accept = "application/json";  // media type of the response
  RetrySafety retry_safety = RetrySafety::kAlways;
  const WriteGuard* guard = nullptr;  // required for writes; null: a read
};

// Thread-safe.
class Sender {
 public:
  Sender(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
         SenderOptions options);

  // Returns the body of a 2xx response. Blocks until then, until `wait` ends or the guard expires.
  ApiResult<std::string> send(const ApiRequest& request, const net::Wait& wait);

  // Returns after the headers of a 2xx response; no retries. For streams.
  ApiResult<std::unique_ptr<Exchange>> open(const ApiRequest& request, const net::Wait& wait);

  const RequestCounter& counter() const { return counter_; }
  Clock& clock() const { return *options_.clock; }

 private:
  ApiResult<std::string> attempt(const ApiRequest& request, const net::Wait& wait);
  ApiResult<std::unique_ptr<Exchange>> begin(const ApiRequest& request, bool whole,
                                             const net::Wait& wait);

  void renew_credentials();

  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<Credentials> credentials_;
  const SenderOptions options_;
  std::atomic<std::uint64_t> generation_{0};  // of the credentials that the connections use
  RequestCounter counter_;
};

// Converts a transport failure of `request` into an ApiError.
ApiError error_from_http_failure(const HttpFailure& failure, const ApiRequest& request);

}  // namespace tilewright::kube
