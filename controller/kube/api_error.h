// What a request to the API server can end with: an answer, or an error that says which of the few
// cases that a controller treats differently it is.
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

enum class Problem {
  kNotFound,  // also its namespace, which may be on its way out
  kAlreadyExists,
  kConflict,         // the object has changed, or a precondition does not hold
  kGone,             // 410: the resourceVersion or continue token is too old; list again
  kInvalid,          // 422, and 400: the object or request is at fault
  kForbidden,        // RBAC, quota, admission
  kUnauthorized,     // also with a token that was read again
  kTooManyRequests,  // 429; of an eviction: a disruption budget refuses it
  kServerTimeout,    // the server gave up; for a write it is not known whether it was done
  kServer,           // other 5xx
  kOther,            // other answers, 3xx included
  kTransport,        // no answer, or half of one: refused, reset, TLS, DNS
  kTimedOut,         // our own deadline
  kCancelled,
  kFenced,    // not sent: this process may no longer write
  kProtocol,  // an answer that cannot be understood, or is larger than allowed
};

std::string_view to_string(Problem problem);

struct ApiError {
  Problem problem = Problem::kOther;
  int http_code = 0;      // 0: there was no answer
  std::string reason;     // of the Status object: "AlreadyExists"
  std::string message;    // the server's own, or ours
  std::string operation;  // "create pods default/mrpc-worker-0"
  std::optional<Duration> retry_after;
  // A write that may have been done although this error came: also when a later attempt of the same
  // call was refused, so AlreadyExists or Conflict may be this call's own doing.
  bool maybe_applied = false;

  // "create pods default/mrpc-worker-0: 409 AlreadyExists: pods \"mrpc-worker-0\" already exists"
  std::string sentence() const;
  Error to_error() const { return {ExitCode::kPeerLost, sentence()}; }
};

// A Status object of the API server (also an ERROR event's).
ApiError error_of_status(int http_code, const nlohmann::json& status);
// Of an answer's body, whatever it holds.
ApiError error_of_answer(int http_code, std::string_view body, std::optional<Duration> retry_after);

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
    TW_CHECK(!ok(), "error() of an answer");
    return std::get<1>(state_);
  }
  // Whether it is this problem; false for an answer.
  bool is(Problem problem) const { return !ok() && error().problem == problem; }

 private:
  void checked() const { TW_CHECK(ok(), "value() of an error: {}", error().sentence()); }
  std::variant<T, ApiError> state_;
};

}  // namespace tilewright::kube
