#include "controller/client/sender.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {
namespace {

ApiError make_error(ErrorKind kind, std::string message, const ApiRequest& request) {
  ApiError error;
  error.kind = kind;
  error.message = std::move(message);
  error.operation = request.operation;
  return error;
}

// Reads the complete body.
std::variant<std::string, HttpFailure> read_all(Exchange& exchange, const net::Wait& wait) {
  std::string body;
  while (true) {
    auto piece = exchange.read(wait);
    if (auto* bytes = std::get_if<std::string>(&piece)) {
      if (body.empty()) {
        body = std::move(*bytes);
      } else {
        body += *bytes;
      }
    } else if (auto* failure = std::get_if<HttpFailure>(&piece)) {
      return std::move(*failure);
    } else {
      return body;
    }
  }
}

}  // namespace

ApiError error_from_http_failure(const HttpFailure& failure, const ApiRequest& request) {
  constexpr auto kind_of = [](HttpFailure::Kind kind) {
    switch (kind) {
      case HttpFailure::Kind::kTimedOut:
        return ErrorKind::kTimedOut;
      case HttpFailure::Kind::kCancelled:
        return ErrorKind::kCancelled;
      case HttpFailure::Kind::kTooLarge:
        return ErrorKind::kTooLarge;
      default:
        return ErrorKind::kTransport;
    }
  };
  ApiError error = make_error(kind_of(failure.kind), failure.message, request);
  error.maybe_applied = request.guard != nullptr && failure.maybe_received;
  return error;
}

Sender::Sender(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
               SenderOptions options)
    : transport_(std::move(transport)),
      credentials_(std::move(credentials)),
      options_(std::move(options)) {}

// Returns after the headers of a 2xx response. Reads the Status in the body of any other response.
ApiResult<std::unique_ptr<Exchange>> Sender::begin(const ApiRequest& request, bool whole,
                                                   const net::Wait& wait) {
  if (wait.cancel && wait.cancel->signalled()) {
    return make_error(ErrorKind::kCancelled, "cancelled before sending", request);
  }
  auto token = credentials_->token(wait);
  if (!token) return make_error(ErrorKind::kUnauthorized, token.error().message, request);
  const std::uint64_t generation = credentials_->generation();
  if (generation_.exchange(generation) != generation) transport_->renew_connections();
  // Checked last, to minimize the time between the check and the write.
  if (request.guard && !request.guard->permits(clock().now())) {
    return make_error(ErrorKind::kFenced, "not sent: this process is no longer the leader",
                      request);
  }
  if (request.guard && options_.before_write) options_.before_write(request);
  HttpRequest http = request.http;
  http.whole = whole;
  http.headers.emplace_back("Accept", request.accept);
  http.headers.emplace_back("User-Agent", options_.user_agent);
  if (!token->empty()) http.headers.emplace_back("Authorization", "Bearer " + *token);
  auto exchange = transport_->send(std::move(http));
  const auto head = exchange->head(wait);
  if (const auto* failure = std::get_if<HttpFailure>(&head)) {
    counter_.count_no_response(request.verb, request.resource);
    return error_from_http_failure(*failure, request);
  }
  const auto& response = std::get<HttpHead>(head);
  counter_.count_response(request.verb, request.resource, response.status);
  if (response.status >= 200 && response.status < 300) return exchange;
  auto body = read_all(*exchange, wait);
  const auto* text = std::get_if<std::string>(&body);
  ApiError error = error_from_response(response.status, text ? *text : "", response.retry_after);
  error.operation = request.operation;
  error.maybe_applied = request.guard != nullptr && response.status >= 500;
  return error;
}

ApiResult<std::unique_ptr<Exchange>> Sender::open(const ApiRequest& request,
                                                  const net::Wait& wait) {
  auto exchange = begin(request, false, wait);
  if (!exchange.is(ErrorKind::kUnauthorized)) return exchange;
  renew_credentials();
  return begin(request, false, wait);
}

// Open connections use the client certificate of their handshake, which may have expired.
void Sender::renew_credentials() {
  credentials_->invalidate();
  transport_->renew_connections();
}

ApiResult<std::string> Sender::attempt(const ApiRequest& request, const net::Wait& wait) {
  net::Wait bounded = wait;
  bounded.deadline = std::min(bounded.deadline, clock().now() + options_.attempt_timeout);
  // A write must not outlive the guard: at its expiry the connection is closed.
  if (request.guard) bounded.deadline = std::min(bounded.deadline, request.guard->valid_until());
  auto exchange = begin(request, true, bounded);
  if (!exchange) return exchange.error();
  auto body = read_all(**exchange, bounded);
  if (request.guard && options_.after_write) options_.after_write(request);
  if (const auto* failure = std::get_if<HttpFailure>(&body)) {
    return error_from_http_failure(*failure, request);
  }
  return std::get<std::string>(std::move(body));
}

ApiResult<std::string> Sender::send(const ApiRequest& request, const net::Wait& wait) {
  bool maybe_applied = false;
  bool reauthenticated = false;
  for (int attempts = 1;; ++attempts) {
    auto body = attempt(request, wait);
    if (body) return body;
    ApiError error = body.error();
    maybe_applied = maybe_applied || error.maybe_applied;
    error.maybe_applied = maybe_applied;
    if (error.kind == ErrorKind::kUnauthorized && error.http_code != 0 && !reauthenticated) {
      renew_credentials();
      reauthenticated = true;
      continue;
    }
    const auto delay =
        retry_delay(options_.retry, error, request.retry_safety, attempts, options_.jitter());
    const MonotonicTime next_attempt = monotonic_now() + delay.value_or(Duration::zero());
    if (!delay || next_attempt >= wait.deadline) return error;
    if (!net::sleep_until({next_attempt, wait.cancel})) {
      error.kind = ErrorKind::kCancelled;
      error.message = "cancelled after: " + error.message;
      return error;
    }
  }
}

}  // namespace tilewright::kube
