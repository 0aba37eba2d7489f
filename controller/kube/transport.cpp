// cpprestsdk behind our own deadlines. All of that library's work, the start of a request and its
// cancellation included, runs on its one thread, so its connections see no two threads at once.
#include "controller/kube/transport.h"

#include <cpprest/http_client.h>
#include <fmt/format.h>
#include <poll.h>
#include <pplx/threadpool.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <charconv>
#include <exception>
#include <mutex>
#include <stdexcept>

#include "controller/kube/body_streams.h"
#include "controller/kube/exchange_state.h"
#include "controller/kube/tls.h"

namespace tilewright::kube {
namespace {

using Kind = HttpFailure::Kind;

void on_http_thread(std::function<void()> work) {
  crossplat::threadpool::shared_instance().service().post(std::move(work));
}

// Seconds only; a date is passed over, as the API server writes none.
std::optional<Duration> retry_after_of(const web::http::http_headers& headers) {
  const auto found = headers.find("Retry-After");
  if (found == headers.end()) return std::nullopt;
  const std::string& text = found->second;
  int seconds = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  if (seconds < 0) return std::nullopt;
  return std::chrono::seconds(std::min(seconds, 3600));
}

// cpprestsdk keeps the number and loses the category: of Asio's end of file, and of its TLS stream
// that ends without a farewell. As errno they would read as missing files and permissions.
bool is_end(int code) {
  return code == boost::asio::error::eof || code == boost::asio::ssl::error::stream_truncated;
}

std::string what_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const web::http::http_exception& error) {
    const auto code = error.error_code();
    if (!code) return error.what();
    return fmt::format("{} ({})", error.what(),
                       is_end(code.value()) ? "the connection was closed" : code.message());
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown failure";
  }
}

// An answer whose end only the closing of the connection tells cannot be known to be whole.
bool framed(const web::http::http_response& response) {
  const auto status = response.status_code();
  if (status == 204 || status == 304) return true;
  return response.headers().has("Content-Length") || response.headers().has("Transfer-Encoding");
}

}  // namespace

void start_http_thread() {
  static std::once_flag once;
  std::call_once(once, spare_system_authorities);
  // Before the pool, so that at exit the pool's thread ends first and frees what OpenSSL keeps for
  // it.
  OPENSSL_init_ssl(0, nullptr);
  try {
    crossplat::threadpool::initialize_with_threads(1);
  } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): it runs already
  }
}

struct Transport::Impl {
  std::shared_ptr<HandshakeLog> log = std::make_shared<HandshakeLog>();
  std::string server;
  std::string prefix;       // the server's own path
  std::string server_name;  // whose certificate is asked for, where it is not the host
  web::http::client::http_client_config settings;
  std::unique_ptr<web::http::client::http_client> client;  // and the connections that it keeps

  void connect() { client = std::make_unique<web::http::client::http_client>(server, settings); }

  // On cpprestsdk's thread.
  void start(const std::shared_ptr<Exchange::State>& state, HttpRequest request) {
    log->last_refusal.clear();
    web::http::http_request http(request.method);
    http.set_request_uri(web::uri(prefix + request.target));
    for (const auto& [name, value] : request.headers) http.headers().add(name, value);
    // cpprestsdk holds the certificate against this header and names it to the server (SNI).
    if (!server_name.empty()) http.headers().add("Host", server_name);
    if (request.body) {
      const auto size = request.body->size();
      const concurrency::streams::streambuf<std::uint8_t> source(
          std::make_shared<RequestSource>(state, *std::move(request.body)));
      std::string type = "application/json";
      http.headers().match("Content-Type", type);
      http.set_body(concurrency::streams::istream(source), size, type);
    }
    http.set_response_stream(concurrency::streams::ostream(
        concurrency::streams::streambuf<std::uint8_t>(std::make_shared<AnswerSink>(state))));
    client->request(http, state->cancellation.get_token())
        .then([state, log = log,
               server = server](const pplx::task<web::http::http_response>& task) {
          try {
            auto response = task.get();
            if (!framed(response)) throw std::runtime_error("the answer says not where it ends");
            {
              const std::lock_guard lock(state->mutex);
              state->head = HttpHead{response.status_code(), retry_after_of(response.headers())};
              state->more();
            }
            response.content_ready().then([state, server](
                                              const pplx::task<web::http::http_response>& body) {
              try {
                body.get();
                const std::lock_guard lock(state->mutex);
                if (!state->failure) state->ended = true;
                state->news.signal();
              } catch (...) {
                state->fail(Kind::kBroken, fmt::format("{}: the answer was cut short: {}", server,
                                                       what_of(std::current_exception())));
              }
            });
          } catch (...) {
            std::string message = fmt::format("{}: {}", server, what_of(std::current_exception()));
            if (!log->last_refusal.empty()) message += ": " + log->last_refusal;
            state->fail(Kind::kBroken, std::move(message));
          }
        });
  }
};

Result<std::unique_ptr<Transport>> Transport::make(const ClusterConfig& config) {
  start_http_thread();
  auto impl = std::make_shared<Impl>();
  if (!web::uri::validate(config.server)) {
    return Error{ExitCode::kUsage, config.server + ": expected a URL such as https://HOST:PORT"};
  }
  const web::uri whole(config.server);
  const bool secure = whole.scheme() == "https";
  if (secure) {
    // Found out now rather than at the first request.
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> trial(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
    const Status fit = prepare_tls(trial.get(), config.tls, std::nullopt);
    if (!fit) return fit.error();
  }
  web::http::client::http_client_config& settings = impl->settings;
  // Deadlines are ours; the library's own would end a quiet watch.
  settings.set_timeout(std::chrono::hours(24));
  settings.set_max_redirects(0);
  // Half of its buffer for each answer, which the allocator would trade with the kernel each time.
  settings.set_chunksize(16 << 10);
  settings.set_validate_certificates(config.tls.verify);
  const std::string& host = whole.host();
  impl->server_name = config.tls.server_name;
  const std::string shown = impl->server_name.empty() ? host : impl->server_name;
  settings.set_tlsext_sni_enabled(shown.find_first_not_of("0123456789.") != std::string::npos);
  settings.set_ssl_context_callback([tls = config.tls, credentials = config.credentials,
                                     log = impl->log](boost::asio::ssl::context& context) {
    const Status ready = prepare_tls(context.native_handle(), tls, credentials->certificate());
    if (!ready) throw std::runtime_error(ready.error().message);
    if (tls.verify) log_refusals(context.native_handle(), log.get());
  });
  impl->server = web::uri_builder()
                     .set_scheme(whole.scheme())
                     .set_host(host)
                     .set_port(whole.port() > 0 ? whole.port() : (secure ? 443 : 80))
                     .to_string();
  impl->prefix = whole.path() == "/" ? "" : whole.path();
  impl->connect();
  return std::unique_ptr<Transport>(new Transport(std::move(impl)));
}

Transport::~Transport() {
  // cpprestsdk's objects go where they lived.
  on_http_thread([impl = std::move(impl_)] {});
}

std::unique_ptr<Exchange> Transport::send(HttpRequest request) {
  auto state = std::make_shared<Exchange::State>(request);
  on_http_thread([impl = impl_, state, request = std::move(request)]() mutable {
    try {
      impl->start(state, std::move(request));
    } catch (...) {
      state->fail(Kind::kBroken,
                  fmt::format("{}: {}", impl->server, what_of(std::current_exception())));
    }
  });
  return std::make_unique<Exchange>(std::move(state));
}

void Transport::renew_connections() {
  on_http_thread([impl = impl_] { impl->connect(); });
}

Exchange::Exchange(std::shared_ptr<State> state) : state_(std::move(state)) {}

Exchange::~Exchange() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->abandoned = true;
    state_->release();
    if (state_->ended) return;
  }
  on_http_thread([state = state_] { state->cancellation.cancel(); });
}

HttpFailure Exchange::abandoned(net::Ready why, const char* waiting_for) {
  const std::lock_guard lock(state_->mutex);
  const bool late = why == net::Ready::kTimedOut;
  return {late ? Kind::kTimedOut : Kind::kCancelled,
          fmt::format("{} while waiting for {}", late ? "timed out" : "cancelled", waiting_for),
          state_->body_sent};
}

std::variant<HttpHead, HttpFailure> Exchange::head(const net::Wait& wait) {
  while (true) {
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->head) return *state_->head;
      if (state_->failure) return *state_->failure;
      state_->heard();
    }
    const net::Ready ready = net::wait_ready(state_->news.fd(), POLLIN, wait);
    if (ready != net::Ready::kYes) return abandoned(ready, "an answer");
  }
}

std::variant<std::string, Exchange::End, HttpFailure> Exchange::read(const net::Wait& wait) {
  while (true) {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->buffered.empty()) {
        std::string bytes = std::exchange(state_->buffered, {});
        state_->release();
        return bytes;
      }
      if (state_->failure) return *state_->failure;
      if (state_->ended) return End{};
      state_->heard();
    }
    const net::Ready ready = net::wait_ready(state_->news.fd(), POLLIN, wait);
    if (ready != net::Ready::kYes) return abandoned(ready, "the rest of an answer");
  }
}

}  // namespace tilewright::kube
