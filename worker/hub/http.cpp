#include "worker/hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/base/version.h"
#include "worker/hub/redact.h"

namespace tilewright::hub {
namespace {

using Problem = HttpResponse::Problem;

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Easy = std::unique_ptr<CURL, FreeEasy>;
using Headers = std::unique_ptr<curl_slist, FreeList>;
using Url = std::unique_ptr<CURLU, FreeUrl>;

void add_header(Headers& headers, const std::string& line) {
  curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
  TW_CHECK(longer != nullptr, "out of memory");
  static_cast<void>(headers.release());
  headers.reset(longer);
}

long milliseconds(Duration duration) {
  return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

// The response while it arrives. The callbacks run inside curl_multi_perform(), through which no
// exception may pass.
struct Exchange {
  const HttpRequest& request;
  HttpResponse response;
  std::size_t head_bytes = 0;
  std::uint64_t bytes = 0;  // of head and body
  std::exception_ptr thrown;
  std::string refusal;  // a bound is exceeded

  std::size_t add_head_line(std::string_view line) {
    bytes += line.size();
    head_bytes += line.size();
    if (head_bytes > kMaxHeadBytes) {
      refusal = fmt::format("found more than {} bytes of header fields", kMaxHeadBytes);
      return 0;
    }
    const std::size_t size = line.size();
    HttpHead& head = response.head;
    if (line.starts_with("HTTP/")) {  // also after an interim response
      head = {};
      const std::size_t space = std::min(line.find(' '), line.size() - 1);
      std::from_chars(line.data() + space + 1, line.data() + line.size(), head.status);
      return size;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    const std::string name = lower_case(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
    while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
    head.fields[name] = value;
    return size;
  }

  std::size_t add_body(std::string_view piece) {
    bytes += piece.size();
    try {
      if (request.on_body && response.head.ok()) {
        request.on_body(response.head, piece);
        return piece.size();
      }
      if (response.body.size() + piece.size() > kMaxBodyBytes) {
        refusal = fmt::format("found a response of more than {} bytes", kMaxBodyBytes);
        return 0;
      }
      response.body += piece;
      return piece.size();
    } catch (...) {
      thrown = std::current_exception();
      return 0;
    }
  }
};

std::size_t on_head_line(char* data, std::size_t size, std::size_t count, void* exchange) {
  return static_cast<Exchange*>(exchange)->add_head_line({data, size * count});
}

std::size_t on_body_piece(char* data, std::size_t size, std::size_t count, void* exchange) {
  return static_cast<Exchange*>(exchange)->add_body({data, size * count});
}

Problem classify(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Problem::kNone;
    case CURLE_OPERATION_TIMEDOUT:
      return Problem::kTimedOut;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return Problem::kCutOff;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return Problem::kCertificate;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WRITE_ERROR:
      return Problem::kMalformed;
    default:
      return Problem::kUnreachable;
  }
}

// The variables of proxies in the order in which libcurl reads them for this URL; the first one
// that is set counts.
std::vector<const char*> proxy_variables(std::string_view url) {
  if (url.starts_with("https:")) return {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
  return {"http_proxy", "all_proxy", "ALL_PROXY"};
}

// libcurl's text without the passwords of the proxies. A proxy that libcurl cannot use is the
// user's error, which no further attempt changes.
std::string checked_reason(std::string reason, std::string_view url) {
  std::vector<std::string> secrets;
  const char* used = nullptr;
  for (const char* variable : proxy_variables(url)) {
    const std::string proxy = environment_variable(variable);
    secrets.emplace_back(credentials(proxy));
    if (used == nullptr && !proxy.empty()) used = variable;
  }
  reason = redact(std::move(reason), secrets);
  if (used != nullptr && reason.starts_with("Unsupported proxy")) {
    throw Failure(ExitCode::kUsage,
                  fmt::format("{}: found {}, expected the URL of a proxy such as "
                              "http://proxy.example:3128",
                              used, quoted_excerpt(redact_url(environment_variable(used)))));
  }
  return reason;
}

std::string url_part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  std::string copy = text;
  curl_free(text);
  return copy;
}

}  // namespace

const std::string& HttpHead::field(std::string_view name) const {
  static const std::string kMissing;
  const auto found = fields.find(name);
  return found == fields.end() ? kMissing : found->second;
}

std::optional<std::uint64_t> HttpHead::number(std::string_view name) const {
  return parse_number<std::uint64_t>(field(name));
}

struct HttpClient::Connections {
  struct Free {
    void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
  };
  std::unique_ptr<CURLM, Free> multi;
};

HttpClient::HttpClient(HttpSettings settings)
    : settings_(std::move(settings)), connections_(std::make_unique<Connections>()) {
  // Thread-safe since libcurl 7.84; further calls only count.
  TW_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start");
  connections_->multi.reset(curl_multi_init());
  TW_CHECK(connections_->multi != nullptr, "libcurl does not start");
}

HttpClient::~HttpClient() {
  connections_.reset();
  curl_global_cleanup();
}

HttpResponse HttpClient::send(const HttpRequest& request) {
  // Not used for a second request: libcurl before 8.1.1 keeps a pointer to the last header field
  // that it has freed, and reads it if a response begins with a folded line (curl/curl#11103).
  const Easy handle(curl_easy_init());
  CURL* easy = handle.get();
  TW_CHECK(easy != nullptr, "out of memory");
  CURLM* multi = connections_->multi.get();
  Exchange exchange{request, {}, 0, 0, nullptr, {}};
  char reason[CURL_ERROR_SIZE] = "";
  Headers headers;
  // Compression would hide the size of the file.
  add_header(headers, "Accept-Encoding: identity");
  if (!request.token.empty()) add_header(headers, "Authorization: Bearer " + request.token);
  if (request.from > 0) add_header(headers, fmt::format("Range: bytes={}-", request.from));
  const std::string agent = fmt::format("tilewright/{}", kVersion);

  const auto set = [easy](CURLoption option, auto value) {
    const CURLcode code = curl_easy_setopt(easy, option, value);
    TW_CHECK(code == CURLE_OK, "libcurl option {}: {}", static_cast<int>(option),
             curl_easy_strerror(code));
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, reason);
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, agent.c_str());
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(settings_.connect_timeout));
  set(CURLOPT_HEADERFUNCTION, on_head_line);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  set(CURLOPT_WRITEFUNCTION, on_body_piece);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // those of a proxy
  if (request.head) set(CURLOPT_NOBODY, 1L);
  if (!settings_.ca_file.empty()) set(CURLOPT_CAINFO, settings_.ca_file.c_str());
  if (!settings_.ca_directory.empty()) set(CURLOPT_CAPATH, settings_.ca_directory.c_str());

  // Removes the transfer, which closes an unfinished connection, whatever ends this function.
  struct Transfer {
    CURLM* multi;
    CURL* easy;
    Transfer(CURLM* m, CURL* e) : multi(m), easy(e) {
      TW_CHECK(curl_multi_add_handle(multi, easy) == CURLM_OK, "curl_multi_add_handle");
    }
    ~Transfer() { curl_multi_remove_handle(multi, easy); }
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
  };
  const Transfer transfer(multi, easy);

  // Connecting has a timeout of its own.
  MonotonicTime window_end = monotonic_now() + settings_.connect_timeout + settings_.stall_timeout;
  std::uint64_t window_bytes = 0;
  bool connected = false;
  HttpResponse& response = exchange.response;
  CURLcode code = CURLE_OK;
  for (int running = 1; running > 0;) {
    CURLMcode outcome = curl_multi_perform(multi, &running);
    if (outcome == CURLM_OK && running > 0) {
      if (settings_.cancel != nullptr && settings_.cancel->signalled()) {
        throw Failure(ExitCode::kTerminated, fmt::format("{}: cancelled", origin_of(request.url)));
      }
      const MonotonicTime now = monotonic_now();
      if (!connected && exchange.bytes > 0) {
        connected = true;
        window_end = now + settings_.stall_timeout;
        window_bytes = exchange.bytes;
      }
      if (now >= window_end) {
        if (exchange.bytes < window_bytes + kMinStallBytes) {
          response.problem = Problem::kTimedOut;
          response.reason = fmt::format("received {} bytes in {}", exchange.bytes - window_bytes,
                                        format_duration(settings_.stall_timeout));
          return std::move(response);
        }
        window_end = now + settings_.stall_timeout;
        window_bytes = exchange.bytes;
      }
      curl_waitfd cancel{settings_.cancel != nullptr ? settings_.cancel->fd() : -1,
                         CURL_WAIT_POLLIN, 0};
      outcome = curl_multi_poll(multi, &cancel, settings_.cancel != nullptr ? 1 : 0,
                                net::poll_timeout(window_end, now), nullptr);
    }
    TW_CHECK(outcome == CURLM_OK, "libcurl: {}", curl_multi_strerror(outcome));
  }
  int queued = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi, &queued)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  if (exchange.thrown) std::rethrow_exception(exchange.thrown);
  response.problem = classify(code);
  if (code != CURLE_OK) {
    response.reason =
        !exchange.refusal.empty()
            ? exchange.refusal
            : checked_reason(reason[0] != '\0' ? reason : curl_easy_strerror(code), request.url);
  }
  curl_off_t retry_after = 0;
  if (curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after) == CURLE_OK &&
      !response.head.field("retry-after").empty()) {
    response.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(
        retry_after, 0, std::chrono::hours(24 * 365) / std::chrono::seconds(1)));
  }
  return std::move(response);
}

std::optional<std::string> resolve_location(const std::string& url, const std::string& location) {
  const Url parsed(curl_url());
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) {
    return std::nullopt;
  }
  const std::string scheme = url_part(parsed, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return std::nullopt;
  const std::string absolute = url_part(parsed, CURLUPART_URL);
  return absolute.empty() ? std::nullopt : std::optional(absolute);
}

std::string origin_of(const std::string& url) {
  const Url parsed(curl_url());
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return {};
  const std::string host = lower_case(url_part(parsed, CURLUPART_HOST));
  return fmt::format("{}://{}:{}", url_part(parsed, CURLUPART_SCHEME), host,
                     url_part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

}  // namespace tilewright::hub
