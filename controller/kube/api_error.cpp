// From HTTP codes and Status objects to problems and sentences.
#include "controller/kube/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "controller/api/json_members.h"

namespace tilewright::kube {
namespace {

struct Reason {
  std::string_view name;
  Problem problem;
};

// As the namespace lifecycle admission plugin says it (k8s.io/api/core/v1).
constexpr const char* kNamespaceTerminating = "NamespaceTerminating";

// metav1.StatusReason; what is not here is judged by its code.
constexpr std::array<Reason, 11> kReasons = {{
    {"NotFound", Problem::kNotFound},
    {"AlreadyExists", Problem::kAlreadyExists},
    {"Conflict", Problem::kConflict},
    {"Expired", Problem::kGone},
    {"Gone", Problem::kGone},
    {"Invalid", Problem::kInvalid},
    {"Forbidden", Problem::kForbidden},
    {"Unauthorized", Problem::kUnauthorized},
    {"TooManyRequests", Problem::kTooManyRequests},
    {"ServerTimeout", Problem::kServerTimeout},
    {"Timeout", Problem::kServerTimeout},
}};

Problem problem_of_code(int code) {
  switch (code) {
    case 400:
    case 422:
      return Problem::kInvalid;
    case 401:
      return Problem::kUnauthorized;
    case 403:
      return Problem::kForbidden;
    case 404:
      return Problem::kNotFound;
    case 409:
      return Problem::kConflict;
    case 410:
      return Problem::kGone;
    case 429:
      return Problem::kTooManyRequests;
    case 504:
      return Problem::kServerTimeout;
    default:
      return code >= 500 ? Problem::kServer : Problem::kOther;
  }
}

// What a proxy in between says may be a web page: a little of it, on one line.
std::string extract(std::string_view body) {
  constexpr std::size_t kMost = 200;
  std::string text(body.substr(0, kMost));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text.empty() ? "an empty body" : text;
}

}  // namespace

std::string_view to_string(Problem problem) {
  switch (problem) {
    case Problem::kNotFound:
      return "NotFound";
    case Problem::kAlreadyExists:
      return "AlreadyExists";
    case Problem::kConflict:
      return "Conflict";
    case Problem::kGone:
      return "Gone";
    case Problem::kInvalid:
      return "Invalid";
    case Problem::kForbidden:
      return "Forbidden";
    case Problem::kUnauthorized:
      return "Unauthorized";
    case Problem::kTooManyRequests:
      return "TooManyRequests";
    case Problem::kServerTimeout:
      return "ServerTimeout";
    case Problem::kServer:
      return "ServerError";
    case Problem::kOther:
      return "Other";
    case Problem::kTransport:
      return "Transport";
    case Problem::kTimedOut:
      return "TimedOut";
    case Problem::kCancelled:
      return "Cancelled";
    case Problem::kFenced:
      return "Fenced";
    case Problem::kProtocol:
      return "Protocol";
  }
  return "Other";
}

std::string ApiError::sentence() const {
  const std::string where = operation.empty() ? "" : operation + ": ";
  if (http_code == 0) return where + message;
  const std::string_view name = reason.empty() ? to_string(problem) : std::string_view(reason);
  return fmt::format("{}{} {}: {}", where, http_code, name, message);
}

ApiError error_of_status(int http_code, const nlohmann::json& status) {
  ApiError error;
  error.http_code = http_code;
  if (const auto code = status.find("code"); http_code == 0 && code != status.end()) {
    if (code->is_number_integer()) error.http_code = code->get<int>();
  }
  error.problem = problem_of_code(error.http_code);
  error.reason = api::text_member(status, "reason");
  error.message = api::text_member(status, "message");
  for (const Reason& known : kReasons) {
    if (error.reason == known.name) error.problem = known.problem;
  }
  if (const auto details = status.find("details");
      details != status.end() && details->is_object()) {
    // Forbidden by its number, but nothing is wrong with rights: there is no such namespace any
    // more.
    for (const auto& cause : api::member(*details, "causes")) {
      if (api::text_member(cause, "reason") == kNamespaceTerminating) {
        error.problem = Problem::kNotFound;
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

ApiError error_of_answer(int http_code, std::string_view body,
                         std::optional<Duration> retry_after) {
  const auto tree = nlohmann::json::parse(body, nullptr, false);
  ApiError error;
  if (tree.is_object() && api::text_member(tree, "kind") == "Status") {
    error = error_of_status(http_code, tree);
  } else {
    error.http_code = http_code;
    error.problem = problem_of_code(http_code);
    error.message = extract(body);
  }
  if (retry_after) error.retry_after = retry_after;
  return error;
}

}  // namespace tilewright::kube
