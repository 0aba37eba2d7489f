// Sends a request until it is answered or out of time: credentials, fencing, retries and counting,
// in this one place for all verbs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "controller/kube/api_error.h"
#include "controller/kube/jitter.h"
#include "controller/kube/request_counter.h"
#include "controller/kube/retry.h"
#include "controller/kube/transport.h"
#include "controller/kube/write_guard.h"

namespace tilewright::kube {

struct ApiRequest;

struct SenderOptions {
  RetryPolicy retry;
  // Most time for one attempt, so that a dead connection leaves some for another.
  Duration attempt_timeout = std::chrono::seconds(15);
  std::string user_agent = "tilewright";
  Jitter jitter = random_jitter();
  // For tests: around every attempt of every write, the first with leave to write given already.
  std::function<void(const ApiRequest&)> before_write, after_write;
};

struct ApiRequest {
  std::string verb;       // for the counter: get, list, watch, create, update, patch, delete
  std::string resource;   // pods, trainjobs/status, pods/eviction
  std::string operation;  // for sentences: "create pods default/mrpc-worker-0"
  HttpRequest http;
  std::string accept = "application/json";  // the form of the answer
  Repeatable repeatable = Repeatable::kYes;
  const WriteGuard* guard = nullptr;  // of every write; null: a read
};

// Thread-safe.
class Sender {
 public:
  Sender(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
         SenderOptions options);

  // The body of a 2xx answer. Blocks until then, until wait ends, or until the guard runs out.
  ApiResult<std::string> send(const ApiRequest& request, const net::Wait& wait);

  // The same up to the headers of a 2xx answer, and not repeated: for streams.
  ApiResult<std::unique_ptr<Exchange>> open(const ApiRequest& request, const net::Wait& wait);

  const RequestCounter& counter() const { return counter_; }

 private:
  ApiResult<std::string> attempt(const ApiRequest& request, const net::Wait& wait);
  ApiResult<std::unique_ptr<Exchange>> begin(const ApiRequest& request, bool whole,
                                             const net::Wait& wait);

  void refused();

  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<Credentials> credentials_;
  const SenderOptions options_;
  std::atomic<std::uint64_t> generation_{0};  // of the credentials, as connections know them
  RequestCounter counter_;
};

// As an error of the request's.
ApiError error_of_failure(const HttpFailure& failure, const ApiRequest& request);

}  // namespace tilewright::kube
