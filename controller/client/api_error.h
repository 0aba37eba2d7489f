// The result of a request to the API server: a value, or an error classified into the cases that a
// controller handles differently.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace tilewright::kube {

enum class ErrorKind {
  kNotFound,  // the object or its namespace is missing, or the namespace is terminating
  kAlreadyExists,
  kConflict,         // the object has changed, or a precondition failed
  kGone,             // 410: the resourceVersion or continue token is too old; list again
  kInvalid,          // 422 and 400: the object or the request is invalid
  kForbidden,        // RBAC, quota, admission
  kUnauthorized,     // also after the token was read again
  kTooManyRequests,  // 429
  kServerTimeout,    // the server timed out; the outcome of a write is unknown
  kServer,           // other 5xx
  kOther,            // other status codes, including 3xx
  kTransport,        // no or an incomplete response: connection refused or reset, TLS, DNS
  kTimedOut,         // the caller's deadline passed
  kCancelled,
  kFenced,    // not sent: this process is no longer allowed to write
  kProtocol,  // a response that cannot be parsed
  kTooLarge,  // a response, or an event of a watch, that is larger than allowed
};

std::string_view to_string(ErrorKind kind);

struct ApiError {
  ErrorKind kind = ErrorKind::kOther;
  int http_code = 0;      // 0: no response
  std::string reason;     // from the Status object: "AlreadyExists"
  std::string message;    // from the server, or from this client
  std::string operation;  // "create pods default/mrpc-worker-0"
  std::optional<Duration> retry_after;
  // The write may have been applied despite the error. Also set if an earlier attempt of the same
  // call may have been applied and so be the cause of AlreadyExists or Conflict.
  bool maybe_applied = false;

  // "create pods default/mrpc-worker-0: 409 AlreadyExists: pods \"mrpc-worker-0\" already exists"
  std::string sentence() const;
  Error to_error() const { return {ExitCode::kPeerLost, sentence()}; }
};

// From a Status object of the API server, for example the object of an ERROR event.
ApiError error_from_status(int http_code, const nlohmann::json& status);
// From a response body, which need not be a Status object.
ApiError error_from_response(int http_code, std::string_view body,
                             std::optional<Duration> retry_after);

template <typename T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : state_(std::move(value)) {}         // NOLINT: implicit on purpose
  ApiResult(ApiError error) : state_(std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  T&& value() && { return checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const ApiError& error() const {
    TW_CHECK(!ok(), "error() called on a successful result");
    return std::get<1>(state_);
  }
  // True if this is an error of the given kind.
  bool is(ErrorKind kind) const { return !ok() && error().kind == kind; }

 private:
  void checked() const { TW_CHECK(ok(), "value() called on an error: {}", error().sentence()); }
  std::variant<T, ApiError> state_;
};

}  // namespace tilewright::kube
