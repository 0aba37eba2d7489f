#include "controller/client/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/base/printable.h"
#include "common/json/members.h"

namespace tilewright::kube {
namespace {

struct Reason {
  std::string_view name;
  ErrorKind kind;
};

// Cause set by the namespace lifecycle admission plugin (k8s.io/api/core/v1).
constexpr const char* kNamespaceTerminating = "NamespaceTerminating";

// metav1.StatusReason. Reasons that are not listed are classified by HTTP status code.
constexpr std::array<Reason, 11> kReasons = {{
    {"NotFound", ErrorKind::kNotFound},
    {"AlreadyExists", ErrorKind::kAlreadyExists},
    {"Conflict", ErrorKind::kConflict},
    {"Expired", ErrorKind::kGone},
    {"Gone", ErrorKind::kGone},
    {"Invalid", ErrorKind::kInvalid},
    {"Forbidden", ErrorKind::kForbidden},
    {"Unauthorized", ErrorKind::kUnauthorized},
    {"TooManyRequests", ErrorKind::kTooManyRequests},
    {"ServerTimeout", ErrorKind::kServerTimeout},
    {"Timeout", ErrorKind::kServerTimeout},
}};

ErrorKind kind_of_http_code(int code) {
  switch (code) {
    case 400:
    case 422:
      return ErrorKind::kInvalid;
    case 401:
      return ErrorKind::kUnauthorized;
    case 403:
      return ErrorKind::kForbidden;
    case 404:
      return ErrorKind::kNotFound;
    case 409:
      return ErrorKind::kConflict;
    case 410:
      return ErrorKind::kGone;
    case 429:
      return ErrorKind::kTooManyRequests;
    case 504:
      return ErrorKind::kServerTimeout;
    default:
      return code >= 500 ? ErrorKind::kServer : ErrorKind::kOther;
  }
}

}  // namespace

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kNotFound:
      return "NotFound";
    case ErrorKind::kAlreadyExists:
      return "AlreadyExists";
    case ErrorKind::kConflict:
      return "Conflict";
    case ErrorKind::kGone:
      return "Gone";
    case ErrorKind::kInvalid:
      return "Invalid";
    case ErrorKind::kForbidden:
      return "Forbidden";
    case ErrorKind::kUnauthorized:
      return "Unauthorized";
    case ErrorKind::kTooManyRequests:
      return "TooManyRequests";
    case ErrorKind::kServerTimeout:
      return "ServerTimeout";
    case ErrorKind::kServer:
      return "ServerError";
    case ErrorKind::kOther:
      return "Other";
    case ErrorKind::kTransport:
      return "Transport";
    case ErrorKind::kTimedOut:
      return "TimedOut";
    case ErrorKind::kCancelled:
      return "Cancelled";
    case ErrorKind::kFenced:
      return "Fenced";
    case ErrorKind::kProtocol:
      return "Protocol";
    case ErrorKind::kTooLarge:
      return "TooLarge";
  }
  return "Other";
}

std::string ApiError::sentence() const {
  const std::string where = operation.empty() ? "" : operation + ": ";
  const std::string what = message.empty() ? "no message" : message;
  if (http_code == 0) return where + what;
  const std::string_view name = reason.empty() ? to_string(kind) : std::string_view(reason);
  return fmt::format("{}{} {}: {}", where, http_code, name, what);
}

ApiError error_from_status(int http_code, const nlohmann::json& status) {
  ApiError error;
  error.http_code = http_code;
  if (const auto code = status.find("code"); http_code == 0 && code != status.end()) {
    if (code->is_number_integer()) error.http_code = code->get<int>();
  }
  error.kind = kind_of_http_code(error.http_code);
  error.reason = string_member(status, "reason");
  error.message = string_member(status, "message");
  for (const Reason& known : kReasons) {
    if (error.reason == known.name) error.kind = known.kind;
  }
  if (const auto details = status.find("details");
      details != status.end() && details->is_object()) {
    // The status code is 403, but the cause is a terminating namespace, not missing permissions.
    for (const auto& cause : member(*details, "causes")) {
      if (string_member(cause, "reason") == kNamespaceTerminating) {
        error.kind = ErrorKind::kNotFound;
      }
    }
    const auto seconds = details->find("retryAfterSeconds");
    if (seconds != details->end() && seconds->is_number_integer()) {
      error.retry_after =
          std::chrono::seconds(std::clamp<std::int64_t>(seconds->get<std::int64_t>(), 0, 3600));
    }
  }
  return error;
}

ApiError error_from_response(int http_code, std::string_view body,
                             std::optional<Duration> retry_after) {
  const auto tree = nlohmann::json::parse(body, nullptr, false);
  ApiError error;
  if (tree.is_object() && string_member(tree, "kind") == "Status") {
    error = error_from_status(http_code, tree);
  } else {
    error.http_code = http_code;
    error.kind = kind_of_http_code(http_code);
    // The body may be the HTML page of a proxy.
    error.message = body.empty() ? "an empty body" : excerpt(body, kLineExcerpt);
  }
  if (retry_after) error.retry_after = retry_after;
  return error;
}

}  // namespace tilewright::kube
