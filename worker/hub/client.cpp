#include "worker/hub/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/base/printable.h"
#include "common/contract/environment.h"
#include "worker/hub/redact.h"

namespace tilewright::hub {
namespace {

using Problem = HttpResponse::Problem;

constexpr int kMaxRedirects = 10;
// A connection that breaks after it brought so much more than any before does not count as a failed
// attempt.
constexpr std::uint64_t kProgressBytes = 1 << 20;

// `W/"abc"` and `"abc"` to `abc`.
std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

bool may_pass(const HttpResponse& response) {
  switch (response.problem) {
    case Problem::kUnreachable:
    case Problem::kTimedOut:
    case Problem::kCutOff:
      return true;
    case Problem::kCertificate:
    case Problem::kMalformed:
      return false;
    case Problem::kNone:
      break;
  }
  const int status = response.head.status;
  constexpr int kNotImplemented = 501;
  return status == 408 || status == 429 || (status >= 500 && status != kNotImplemented);
}

bool is_missing_file(const HttpResponse& response) {
  if (response.problem != Problem::kNone || response.head.status != 404) return false;
  const std::string& error = response.head.field("x-error-code");
  return error == "EntryNotFound" ||
         (error.empty() && !response.head.field("x-repo-commit").empty());
}

// The first byte of a 206 response: "Content-Range: bytes 100-199/200".
std::optional<std::uint64_t> range_start(const HttpHead& head) {
  const std::string& range = head.field("content-range");
  if (!range.starts_with("bytes ")) return std::nullopt;
  std::uint64_t start = 0;
  const auto [end, error] = std::from_chars(range.data() + 6, range.data() + range.size(), start);
  if (error != std::errc() || end == range.data() + range.size() || *end != '-')
    return std::nullopt;
  return start;
}

}  // namespace

bool hub_failed(const Failure& failure) {
  return failure.code() == ExitCode::kHubUnavailable ||
         dynamic_cast<const RepositoryRefused*>(&failure) != nullptr;
}

HubClient::HubClient(const HubOptions& options)
    : options_(options),
      origin_(origin_of(options.endpoint)),
      http_({.connect_timeout = options.limits.connect,
             .stall_timeout = options.limits.stall,
             .ca_file = options.ca_file,
             .ca_directory = options.ca_directory,
             .cancel = options.cancel}) {}

void HubClient::reject(const Repository& repository, const HttpResponse& response,
                       const std::string& what) const {
  throw Failure(repository.code(),
                fmt::format("{}: {} {}; is HF_ENDPOINT the URL of a Hugging Face hub?",
                            repository.description(), options_.endpoint,
                            response.head.status == 0
                                ? what
                                : fmt::format("answered {} {}", response.head.status, what)));
}

std::string HubClient::without_token(std::string text) const {
  return redact(std::move(text), {&options_.token, 1});
}

HttpResponse HubClient::follow(const Repository& repository, HttpRequest request, Until until) {
  if (!options_.token_problem.empty()) throw Failure(ExitCode::kUsage, options_.token_problem);
  std::string commit;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    request.token = origin_of(request.url) == origin_ ? options_.token : "";
    HttpResponse response = http_.send(request);
    response.reason = without_token(std::move(response.reason));
    // The last hop may be a storage server, which knows no commit.
    if (commit.empty()) commit = response.head.field("x-repo-commit");
    if (!commit.empty()) response.head.fields["x-repo-commit"] = commit;
    if (response.problem != Problem::kNone || !response.head.redirect()) return response;
    if (until == Until::kDescribed && !response.head.field("x-linked-etag").empty()) {
      return response;
    }
    const std::string& location = response.head.field("location");
    const auto next = resolve_location(request.url, location);
    if (!next) {
      reject(repository, response,
             fmt::format("with the redirect {}",
                         quoted_excerpt(without_token(redact_url(location)), kLineExcerpt)));
    }
    if (request.url.starts_with("https:") && !next->starts_with("https:")) {
      reject(repository, response,
             fmt::format("with a redirect to {}, which is not encrypted", origin_of(*next)));
    }
    request.url = *next;
  }
  throw Failure(repository.code(),
                fmt::format("{}: {} redirects more than {} times", repository.description(),
                            options_.endpoint, kMaxRedirects));
}

std::string HubClient::describe_failure(const HttpResponse& response) const {
  switch (response.problem) {
    case Problem::kUnreachable:
      return fmt::format("cannot connect to {}: {}", options_.endpoint, response.reason);
    case Problem::kTimedOut:
      return fmt::format("{} does not answer in time: {}", options_.endpoint, response.reason);
    case Problem::kCutOff:
      return fmt::format("{} breaks off its response: {}", options_.endpoint, response.reason);
    case Problem::kCertificate:
      return fmt::format(
          "the certificate of {} does not verify: {}; {} or {} names other certificate authorities",
          options_.endpoint, response.reason, env::kRequestsCaBundle, env::kSslCertFile);
    case Problem::kMalformed:
      return fmt::format("{} sends no valid response: {}", options_.endpoint, response.reason);
    case Problem::kNone:
      break;
  }
  return fmt::format("{} answers {}", options_.endpoint, response.head.status);
}

bool HubClient::wait_to_retry(const Repository& repository, const HttpResponse& response,
                              int attempt) {
  const HubLimits& limits = options_.limits;
  const int status = response.head.status;
  if (may_pass(response)) {
    Duration wait = limits.first_pause;
    for (int i = 1; i < attempt && wait < limits.max_pause; ++i) wait *= 2;
    wait = std::min(wait, limits.max_pause);
    if (response.retry_after) wait = std::max(wait, *response.retry_after);
    const bool too_long = response.retry_after && *response.retry_after > limits.max_retry_after;
    if (attempt < limits.attempts && !too_long) {
      options_.report(fmt::format("{}: {}; attempt {} of {} in {}", repository.description(),
                                  describe_failure(response), attempt + 1, limits.attempts,
                                  format_duration(wait)));
      pause(wait);
      return true;
    }
    const std::string asked =
        too_long ? fmt::format(" and asks to wait {}", format_duration(*response.retry_after))
                 : fmt::format(", after {} attempts", attempt);
    if (status == 429) {
      throw Failure(ExitCode::kHubUnavailable,
                    fmt::format("{}: {} limits requests (429){}; {}", repository.description(),
                                options_.endpoint, asked,
                                options_.token.empty() ? "a token in HF_TOKEN raises the limit"
                                                       : "try again later"));
    }
    throw Failure(ExitCode::kHubUnavailable, fmt::format("{}: {}{}", repository.description(),
                                                         describe_failure(response), asked));
  }
  if (response.problem != Problem::kNone) {
    throw Failure(repository.code(),
                  fmt::format("{}: {}", repository.description(), describe_failure(response)));
  }
  if (response.head.ok() || response.head.redirect() || is_missing_file(response)) return false;

  const std::string& error = response.head.field("x-error-code");
  const char* kind = repository.type == RepositoryType::kModel ? "model" : "data set";
  const std::string token = options_.token.empty()
                                ? "set HF_TOKEN to a token that has access"
                                : "the token in HF_TOKEN (or the token file) has no access";
  if (error == "RepoNotFound" || (status == 404 && error != "RevisionNotFound") ||
      (status == 401 && options_.token.empty() && error != "GatedRepo")) {
    throw RepositoryRefused(
        repository.code(),
        fmt::format("{}: {} has no public {} of this name ({}), expected a local "
                    "directory or a name on the hub; if it is private or gated, {}",
                    repository.description(), options_.endpoint, kind, status, token));
  }
  if (error == "RevisionNotFound") {
    throw Failure(repository.code(),
                  fmt::format("{}: {} has no such revision (404), expected a branch, a tag or a "
                              "commit of the {}",
                              repository.description(), options_.endpoint, kind));
  }
  if (status == 401 || status == 403) {
    throw RepositoryRefused(
        repository.code(),
        fmt::format("{}: {} refuses access ({}{}); {}{}", repository.description(),
                    options_.endpoint, status, error == "GatedRepo" ? ", gated" : "",
                    error == "GatedRepo" ? "accept the conditions on its page, and " : "", token));
  }
  reject(repository, response,
         excerpt(without_token(response.head.field("x-error-message")), kLineExcerpt));
}

void HubClient::pause(Duration duration) const {
  if (!net::sleep_until(net::within(duration, options_.cancel))) {
    throw Failure(ExitCode::kTerminated, fmt::format("{}: cancelled", options_.endpoint));
  }
}

HttpResponse HubClient::send_with_retries(const Repository& repository, const HttpRequest& request,
                                          Until until) {
  for (int attempt = 1;; ++attempt) {
    HttpResponse response = follow(repository, request, until);
    if (!wait_to_retry(repository, response, attempt)) return response;
  }
}

RemoteFile HubClient::head(const Repository& repository, const std::string& revision,
                           const std::string& file) {
  HttpRequest request;
  request.url = options_.endpoint + repository.file_path(revision, file);
  request.head = true;
  const HttpResponse response = send_with_retries(repository, request, Until::kDescribed);
  const HttpHead& head = response.head;
  RemoteFile remote;
  remote.commit = head.field("x-repo-commit");
  if (!remote.commit.empty() && !is_commit(remote.commit)) {
    reject(repository, response,
           fmt::format("with the commit {}, expected 40 hexadecimal digits",
                       quoted_excerpt(without_token(remote.commit))));
  }
  if (is_missing_file(response)) return remote;
  const std::string& linked = head.field("x-linked-etag");
  remote.exists = true;
  remote.etag = plain_etag(linked.empty() ? head.field("etag") : linked);
  const auto size = head.number(linked.empty() ? "content-length" : "x-linked-size");
  if (remote.commit.empty() || !is_etag(remote.etag) || !size) {
    reject(repository, response,
           fmt::format("for {} with the commit {}, the ETag {} and {}, expected all three", file,
                       quoted_excerpt(without_token(remote.commit)),
                       quoted_excerpt(without_token(remote.etag)),
                       size ? fmt::format("the size {}", *size) : "no size"));
  }
  remote.size = *size;
  return remote;
}

nlohmann::json HubClient::info(const Repository& repository, const std::string& revision) {
  HttpRequest request;
  request.url = options_.endpoint + repository.api_path(revision);
  const HttpResponse response = send_with_retries(repository, request, Until::kEnd);
  if (is_missing_file(response)) reject(repository, response, "about the repository");
  nlohmann::json answer = nlohmann::json::parse(response.body, nullptr, false);
  if (!answer.is_object()) {
    reject(repository, response,
           fmt::format("with {}, expected a JSON object",
                       quoted_excerpt(without_token(response.body), kLineExcerpt)));
  }
  return answer;
}

void HubClient::download(const Repository& repository, const std::string& commit,
                         const std::string& file, std::uint64_t size, BodySink& sink) {
  std::uint64_t most = sink.received();
  for (int attempt = 1; sink.received() < size;) {
    HttpRequest request;
    request.url = options_.endpoint + repository.file_path(commit, file);
    request.from = sink.received();
    bool first = true;
    request.on_body = [&](const HttpHead& head, std::string_view bytes) {
      if (first) {
        first = false;
        if (head.status != 206 && sink.received() > 0) sink.restart();
        if (head.status == 206 && range_start(head) != sink.received()) {
          const std::uint64_t asked = sink.received();
          sink.restart();
          throw Failure(
              ExitCode::kHubUnavailable,
              fmt::format("{}: {} sends \"Content-Range: {}\" for {}, expected the bytes "
                          "from {}",
                          repository.description(), options_.endpoint,
                          excerpt(without_token(head.field("content-range"))), file, asked));
        }
      }
      if (bytes.size() > size - sink.received()) {
        sink.restart();
        throw Failure(repository.code(),
                      fmt::format("{}: {} sends more than the {} bytes that it announced for {}",
                                  repository.description(), options_.endpoint, size, file));
      }
      sink.write(bytes);
    };
    HttpResponse response = follow(repository, request, Until::kEnd);
    if (sink.received() == size) return;
    if (response.problem == Problem::kNone && response.head.status == 416) {
      // The partial file is longer than the server's.
      if (request.from == 0) reject(repository, response, "to a request without a range");
      sink.restart();
      ++attempt;
      if (attempt <= options_.limits.attempts) continue;
    }
    if (response.problem == Problem::kNone && response.head.ok()) {
      response.problem = Problem::kCutOff;
      response.reason =
          fmt::format("received {} of the {} bytes of {}", sink.received(), size, file);
    }
    if (sink.received() >= most + kProgressBytes) attempt = 1;
    most = std::max(most, sink.received());
    if (!wait_to_retry(repository, response, attempt)) {
      throw Failure(repository.code(),
                    fmt::format("{}: {} has no {} (404), which it described",
                                repository.description(), options_.endpoint, file));
    }
    ++attempt;
  }
}

}  // namespace tilewright::hub
