// Implements Transport with cpprestsdk. All work of that library, including the start and the
// cancellation of a request, runs on its single thread, so no two threads use a connection.
#include "controller/client/transport.h"

#include <cpprest/astreambuf.h>
#include <cpprest/http_client.h>
#include <fmt/format.h>
#include <poll.h>
#include <pplx/pplxtasks.h>
#include <pplx/threadpool.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "common/base/strings.h"
#include "controller/client/tls.h"

namespace tilewright::kube {

// The data that cpprestsdk's thread and the caller of a request share.
struct Exchange::State {
  // While more unread bytes than this are buffered, nothing is read from the connection.
  static constexpr std::size_t kMaxBufferedBytes = 256 << 10;

  explicit State(const HttpRequest& request)
      : max_response_bytes(request.max_response_bytes), whole(request.whole) {}

  const std::uint64_t max_response_bytes;
  const bool whole;
  net::WakeUp wake_up;  // signalled when a field below changes for the reader
  pplx::cancellation_token_source cancellation;

  std::mutex mutex;
  std::optional<HttpHead> head;
  std::string buffered;
  std::uint64_t received = 0;
  bool ended = false;
  bool abandoned = false;
  bool body_sent = false;  // cpprestsdk has read the request body, so it has written the headers
  std::optional<HttpFailure> failure;
  // Completes the write that waits for `buffered` to be read.
  std::optional<pplx::task_completion_event<std::size_t>> blocked_write;
  std::size_t blocked_write_bytes = 0;

  // With the lock held: a part of the response has arrived.
  void wake_reader() {
    if (!whole) wake_up.signal();
  }

  // With the lock held: the reader has consumed everything.
  void clear_wake_up() {
    if (wake_up.signalled()) wake_up.clear();
  }

  // Only the first failure is kept.
  void fail(HttpFailure::Kind kind, std::string message) {
    const std::lock_guard lock(mutex);
    if (!failure && !ended) failure = HttpFailure{kind, std::move(message), body_sent};
    wake_up.signal();
  }

  // Called from cpprestsdk's thread with a part of the body.
  pplx::task<std::size_t> receive(const char* bytes, std::size_t size) {
    const std::lock_guard lock(mutex);
    received += size;
    if (received > max_response_bytes && !failure) {
      failure = HttpFailure{HttpFailure::Kind::kTooLarge,
                            "the response is larger than the limit of " +
                                std::to_string(max_response_bytes) + " bytes",
                            true};
      wake_up.signal();
    }
    if (failure || abandoned) return pplx::task_from_result(size);
    buffered.append(bytes, size);
    wake_reader();
    if (whole || buffered.size() <= kMaxBufferedBytes) return pplx::task_from_result(size);
    blocked_write.emplace();
    blocked_write_bytes = size;
    return pplx::create_task(*blocked_write);
  }

  // With the lock held: lets cpprestsdk continue reading.
  void release() {
    if (!blocked_write) return;
    blocked_write->set(blocked_write_bytes);
    blocked_write.reset();
  }
};

namespace {

using Kind = HttpFailure::Kind;

void on_http_thread(std::function<void()> work) {
  crossplat::threadpool::shared_instance().service().post(std::move(work));
}

// Accepts seconds only: the API server never sends a date.
std::optional<Duration> retry_after_of(const web::http::http_headers& headers) {
  const auto found = headers.find("Retry-After");
  if (found == headers.end()) return std::nullopt;
  const std::string& text = found->second;
  const auto seconds = parse_number<int>(text, 0);
  if (!seconds) return std::nullopt;
  return std::chrono::seconds(std::min(*seconds, 3600));
}

// True for Asio's end of file and for a TLS stream that ends without close_notify. cpprestsdk keeps
// the number of such an error but drops its category; interpreted as errno, the number would give a
// wrong message.
bool is_eof(int code) {
  return code == boost::asio::error::eof || code == boost::asio::ssl::error::stream_truncated;
}

std::string error_message_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const web::http::http_exception& error) {
    const auto code = error.error_code();
    if (!code) return error.what();
    return fmt::format("{} ({})", error.what(),
                       is_eof(code.value()) ? "the connection was closed" : code.message());
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown failure";
  }
}

// Without Content-Length or Transfer-Encoding only the end of the connection ends the body, so an
// incomplete body cannot be detected.
bool framed(const web::http::http_response& response) {
  const auto status = response.status_code();
  if (status == 204 || status == 304) return true;
  return response.headers().has("Content-Length") || response.headers().has("Transfer-Encoding");
}

// Default implementations of the stream buffer functions that neither subclass needs.
class StreambufBase : public concurrency::streams::details::streambuf_state_manager<std::uint8_t> {
 protected:
  using Base = concurrency::streams::details::streambuf_state_manager<std::uint8_t>;
  using Int = int_type;
  explicit StreambufBase(std::ios_base::openmode mode) : Base(mode) {}

 public:
  // cpprestsdk resends a seekable body when a reused connection breaks, although the server may
  // have processed the request. Only retry.h decides about retries, so the body must not be
  // seekable.
  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  std::size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(std::size_t, std::ios_base::openmode) override {}
  std::size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return npos(); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return npos(); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return npos();
  }
  bool acquire(std::uint8_t*& bytes, std::size_t& count) override {
    bytes = nullptr;
    count = 0;
    return false;
  }
  void release(std::uint8_t*, std::size_t) override {}

 protected:
  pplx::task<Int> _putc(std::uint8_t) override { return none(); }
  pplx::task<std::size_t> _putn(const std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  pplx::task<Int> _bumpc() override { return none(); }
  Int _sbumpc() override { return traits::eof(); }
  pplx::task<Int> _getc() override { return none(); }
  Int _sgetc() override { return traits::eof(); }
  pplx::task<Int> _nextc() override { return none(); }
  pplx::task<Int> _ungetc() override { return none(); }
  pplx::task<std::size_t> _getn(std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  std::size_t _scopy(std::uint8_t*, std::size_t) override { return 0; }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }
  void _commit(std::size_t) override {}

 private:
  static pos_type npos() { return static_cast<pos_type>(traits::eof()); }
  static pplx::task<Int> none() { return pplx::task_from_result<Int>(traits::eof()); }
};

// Receives the response body from cpprestsdk. A write blocks while too much is unread.
class ResponseSink : public StreambufBase {
 public:
  explicit ResponseSink(std::shared_ptr<Exchange::State> state)
      : StreambufBase(std::ios_base::out), state_(std::move(state)) {}

 protected:
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    return state_->receive(reinterpret_cast<const char*>(bytes), count);
  }

 private:
  const std::shared_ptr<Exchange::State> state_;
};

// Passes the request body to cpprestsdk, once and in order.
class RequestSource : public StreambufBase {
 public:
  RequestSource(std::shared_ptr<Exchange::State> state, std::string body)
      : StreambufBase(std::ios_base::in), state_(std::move(state)), body_(std::move(body)) {}

  bool has_size() const override { return true; }
  utility::size64_t size() const override { return body_.size(); }
  std::size_t in_avail() const override { return body_.size() - taken_; }

 protected:
  pplx::task<std::size_t> _getn(std::uint8_t* bytes, std::size_t count) override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->body_sent = true;
    }
    count = std::min(count, body_.size() - taken_);
    std::memcpy(bytes, body_.data() + taken_, count);
    taken_ += count;
    return pplx::task_from_result(count);
  }

 private:
  const std::shared_ptr<Exchange::State> state_;
  const std::string body_;
  std::size_t taken_ = 0;
};

}  // namespace

void start_http_thread() {
  static std::once_flag once;
  std::call_once(once, disable_default_ca_file);
  // Initialize OpenSSL before the pool: at exit the pool's thread then ends first and frees its
  // thread-local OpenSSL state.
  OPENSSL_init_ssl(0, nullptr);
  try {
    crossplat::threadpool::initialize_with_threads(1);
  } catch (const std::runtime_error&) {  // NOLINT(bugprone-empty-catch): already running
  }
}

struct Transport::Impl {
  std::shared_ptr<HandshakeLog> log = std::make_shared<HandshakeLog>();
  std::string server;
  std::string prefix;       // path of the server URL
  std::string server_name;  // expected in the certificate; empty: the host
  web::http::client::http_client_config settings;
  std::unique_ptr<web::http::client::http_client> client;  // owns the reusable connections

  void connect() { client = std::make_unique<web::http::client::http_client>(server, settings); }

  // On cpprestsdk's thread.
  void start(const std::shared_ptr<Exchange::State>& state, HttpRequest request) {
    log->last_verify_error.clear();
    web::http::http_request http(request.method);
    http.set_request_uri(web::uri(prefix + request.target));
    for (const auto& [name, value] : request.headers) http.headers().add(name, value);
    // cpprestsdk verifies the certificate against this header and sends it as SNI.
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
        concurrency::streams::streambuf<std::uint8_t>(std::make_shared<ResponseSink>(state))));
    client->request(http, state->cancellation.get_token())
        .then([state, log = log,
               server = server](const pplx::task<web::http::http_response>& task) {
          try {
            auto response = task.get();
            if (!framed(response))
              throw std::runtime_error(
                  "the response has neither Content-Length nor Transfer-Encoding");
            {
              const std::lock_guard lock(state->mutex);
              state->head = HttpHead{response.status_code(), retry_after_of(response.headers())};
              state->wake_reader();
            }
            response.content_ready().then([state, server](
                                              const pplx::task<web::http::http_response>& body) {
              try {
                body.get();
                const std::lock_guard lock(state->mutex);
                if (!state->failure) state->ended = true;
                state->wake_up.signal();
              } catch (...) {
                state->fail(Kind::kBroken, fmt::format("{}: the response is incomplete: {}", server,
                                                       error_message_of(std::current_exception())));
              }
            });
          } catch (...) {
            std::string message =
                fmt::format("{}: {}", server, error_message_of(std::current_exception()));
            if (!log->last_verify_error.empty()) message += ": " + log->last_verify_error;
            state->fail(Kind::kBroken, std::move(message));
          }
        });
  }
};

Result<std::unique_ptr<Transport>> Transport::make(const ClusterConfig& config, Clock& clock) {
  start_http_thread();
  auto impl = std::make_shared<Impl>();
  if (!web::uri::validate(config.server)) {
    return Error{ExitCode::kUsage, config.server + ": expected a URL such as https://HOST:PORT"};
  }
  const web::uri whole(config.server);
  const bool secure = whole.scheme() == "https";
  if (secure) {
    // Report unusable certificates now rather than at the first request.
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> trial(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
    const Status fit = prepare_tls(trial.get(), config.tls, std::nullopt);
    if (!fit) return fit.error();
  }
  web::http::client::http_client_config& settings = impl->settings;
  // net::Wait provides the deadlines; the library's timeout would end an idle watch.
  settings.set_timeout(std::chrono::hours(24));
  settings.set_max_redirects(0);
  // The default is 64 KiB; the allocator would map and unmap such a buffer for every response.
  settings.set_chunksize(16 << 10);
  settings.set_validate_certificates(config.tls.verify);
  const std::string& host = whole.host();
  impl->server_name = config.tls.server_name;
  const std::string sni_host = impl->server_name.empty() ? host : impl->server_name;
  settings.set_tlsext_sni_enabled(sni_host.find_first_not_of("0123456789.") != std::string::npos);
  settings.set_ssl_context_callback([tls = config.tls, credentials = config.credentials,
                                     log = impl->log](boost::asio::ssl::context& context) {
    const Status ready = prepare_tls(context.native_handle(), tls, credentials->certificate());
    if (!ready) throw std::runtime_error(ready.error().message);
    if (tls.verify) record_verify_errors(context.native_handle(), log.get());
  });
  impl->server = web::uri_builder()
                     .set_scheme(whole.scheme())
                     .set_host(host)
                     .set_port(whole.port() > 0 ? whole.port() : (secure ? 443 : 80))
                     .to_string();
  impl->prefix = whole.path() == "/" ? "" : whole.path();
  impl->connect();
  return std::unique_ptr<Transport>(new Transport(std::move(impl), clock));
}

Transport::~Transport() {
  // Destroy cpprestsdk's objects on the thread that uses them.
  on_http_thread([impl = std::move(impl_)] {});
}

std::unique_ptr<Exchange> Transport::send(HttpRequest request) {
  auto state = std::make_shared<Exchange::State>(request);
  on_http_thread([impl = impl_, state, request = std::move(request)]() mutable {
    try {
      impl->start(state, std::move(request));
    } catch (...) {
      state->fail(Kind::kBroken,
                  fmt::format("{}: {}", impl->server, error_message_of(std::current_exception())));
    }
  });
  return std::make_unique<Exchange>(std::move(state), clock_);
}

void Transport::renew_connections() {
  on_http_thread([impl = impl_] { impl->connect(); });
}

Exchange::Exchange(std::shared_ptr<State> state, Clock& clock)
    : state_(std::move(state)), clock_(clock) {
  clock_.subscribe(this, [state = state_.get()] { state->wake_up.signal(); });
}

Exchange::~Exchange() {
  clock_.unsubscribe(this);
  {
    const std::lock_guard lock(state_->mutex);
    state_->abandoned = true;
    state_->release();
    if (state_->ended) return;
  }
  on_http_thread([state = state_] { state->cancellation.cancel(); });
}

std::optional<HttpFailure> Exchange::await_change(const net::Wait& wait, const char* waiting_for) {
  const MonotonicTime until = clock_.now() < wait.deadline ? wait.deadline : monotonic_now();
  const net::Ready ready = net::wait_ready(state_->wake_up.fd(), POLLIN, {until, wait.cancel});
  if (ready == net::Ready::kYes) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  const bool late = ready == net::Ready::kTimedOut;
  return HttpFailure{
      late ? Kind::kTimedOut : Kind::kCancelled,
      fmt::format("{} while waiting for {}", late ? "timed out" : "cancelled", waiting_for),
      state_->body_sent};
}

std::variant<HttpHead, HttpFailure> Exchange::head(const net::Wait& wait) {
  while (true) {
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->head) return *state_->head;
      if (state_->failure) return *state_->failure;
      state_->clear_wake_up();
    }
    if (auto failure = await_change(wait, "a response")) return *std::move(failure);
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
      state_->clear_wake_up();
    }
    if (auto failure = await_change(wait, "the rest of a response")) return *std::move(failure);
  }
}

}  // namespace tilewright::kube
