// The loop around one attempt.
#include "controller/kube/sender.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {
namespace {

ApiError plain_error(Problem problem, std::string message, const ApiRequest& request) {
  ApiError error;
  error.problem = problem;
  error.message = std::move(message);
  error.operation = request.operation;
  return error;
}

// The whole body.
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

ApiError error_of_failure(const HttpFailure& failure, const ApiRequest& request) {
  constexpr auto problem_of = [](HttpFailure::Kind kind) {
    switch (kind) {
      case HttpFailure::Kind::kTimedOut:
        return Problem::kTimedOut;
      case HttpFailure::Kind::kCancelled:
        return Problem::kCancelled;
      case HttpFailure::Kind::kTooLarge:
        return Problem::kProtocol;
      default:
        return Problem::kTransport;
    }
  };
  ApiError error = plain_error(problem_of(failure.kind), failure.message, request);
  error.maybe_applied = request.guard != nullptr && failure.maybe_received;
  return error;
}

Sender::Sender(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
               SenderOptions options)
    : transport_(std::move(transport)),
      credentials_(std::move(credentials)),
      options_(std::move(options)) {}

// Up to the headers of a good answer; another's body is read for its Status.
ApiResult<std::unique_ptr<Exchange>> Sender::begin(const ApiRequest& request, bool whole,
                                                   const net::Wait& wait) {
  if (wait.cancel && wait.cancel->signalled()) {
    return plain_error(Problem::kCancelled, "cancelled before it was sent", request);
  }
  auto token = credentials_->token(wait);
  if (!token) return plain_error(Problem::kUnauthorized, token.error().message, request);
  const std::uint64_t generation = credentials_->generation();
  if (generation_.exchange(generation) != generation) transport_->renew_connections();
  // Asked last, so that little time passes between leave and writing.
  if (request.guard && !request.guard->permits(monotonic_now())) {
    return plain_error(Problem::kFenced, "not sent: this process is no longer the leader", request);
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
    counter_.count_unanswered(request.verb, request.resource);
    return error_of_failure(*failure, request);
  }
  const auto& answer = std::get<HttpHead>(head);
  counter_.count_answered(request.verb, request.resource, answer.status);
  if (answer.status >= 200 && answer.status < 300) return exchange;
  auto body = read_all(*exchange, wait);
  const auto* text = std::get_if<std::string>(&body);
  ApiError error = error_of_answer(answer.status, text ? *text : "", answer.retry_after);
  error.operation = request.operation;
  error.maybe_applied = request.guard != nullptr && answer.status >= 500;
  return error;
}

ApiResult<std::unique_ptr<Exchange>> Sender::open(const ApiRequest& request,
                                                  const net::Wait& wait) {
  auto exchange = begin(request, false, wait);
  if (!exchange.is(Problem::kUnauthorized)) return exchange;
  refused();
  return begin(request, false, wait);
}

// A kept connection shows the certificate that it was made with, which may have expired since.
void Sender::refused() {
  credentials_->refused();
  transport_->renew_connections();
}

ApiResult<std::string> Sender::attempt(const ApiRequest& request, const net::Wait& wait) {
  net::Wait bounded = wait;
  bounded.deadline = std::min(bounded.deadline, monotonic_now() + options_.attempt_timeout);
  // What is not answered while this process may write is given up: its connection is closed.
  if (request.guard) bounded.deadline = std::min(bounded.deadline, request.guard->valid_until());
  auto exchange = begin(request, true, bounded);
  if (!exchange) return exchange.error();
  auto body = read_all(**exchange, bounded);
  if (request.guard && options_.after_write) options_.after_write(request);
  if (const auto* failure = std::get_if<HttpFailure>(&body)) {
    return error_of_failure(*failure, request);
  }
  return std::get<std::string>(std::move(body));
}

ApiResult<std::string> Sender::send(const ApiRequest& request, const net::Wait& wait) {
  bool maybe_applied = false;
  bool authorized_again = false;
  for (int attempts = 1;; ++attempts) {
    auto answer = attempt(request, wait);
    if (answer) return answer;
    ApiError error = answer.error();
    maybe_applied = maybe_applied || error.maybe_applied;
    error.maybe_applied = maybe_applied;
    if (error.problem == Problem::kUnauthorized && error.http_code != 0 && !authorized_again) {
      refused();
      authorized_again = true;
      continue;
    }
    const auto delay =
        retry_delay(options_.retry, error, request.repeatable, attempts, options_.jitter());
    const MonotonicTime again = monotonic_now() + delay.value_or(Duration::zero());
    if (!delay || again >= wait.deadline) return error;
    if (net::wait_ready(-1, 0, {again, wait.cancel}) == net::Ready::kCancelled) {
      error.problem = Problem::kCancelled;
      error.message = "cancelled after: " + error.message;
      return error;
    }
  }
}

}  // namespace tilewright::kube
