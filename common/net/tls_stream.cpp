#include "common/net/tls_stream.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tilewright::net {
namespace {

// The only cipher suite; its hash is also the hash of the PSK. Every supported CPU has AES
// instructions.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteNumber[] = {0x13, 0x01};
constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

TlsStream* stream_of(const SSL* ssl) { return static_cast<TlsStream*>(SSL_get_app_data(ssl)); }

Error broken(std::string what) { return {ExitCode::kPeerLost, std::move(what)}; }

}  // namespace

SSL_CTX* TlsStream::shared_context(Role role) {
  static const std::unique_ptr<SSL_CTX, Free> client(make_context(Role::kClient));
  static const std::unique_ptr<SSL_CTX, Free> server(make_context(Role::kServer));
  return role == Role::kClient ? client.get() : server.get();
}

SSL_CTX* TlsStream::make_context(Role role) {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  TW_CHECK(context != nullptr, "TLS is not available");
  TW_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_ciphersuites(context, kSuite) == 1 &&
               SSL_CTX_set_num_tickets(context, 0) == 1,
           "TLS 1.3 with {} is not available", kSuite);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  if (role == Role::kClient) {
    // The client trusts no certificate, so only the shared key authenticates a server. The server
    // has no certificate, so a client without the key cannot connect.
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(context, use_key);
  } else {
    SSL_CTX_set_psk_find_session_callback(context, find_key);
  }
  return context;
}

TlsStream::TlsStream(int fd, Role role, const TlsLimits& limits)
    : fd_(fd), limits_(limits), read_events_(POLLIN), write_events_(POLLOUT) {
  ssl_.reset(SSL_new(shared_context(role)));
  // OpenSSL's socket BIO is unsuitable: its write(2) raises SIGPIPE.
  method_.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tilewright"));
  const bool good = ssl_ && method_ && BIO_meth_set_read(method_.get(), read_raw) == 1 &&
                    BIO_meth_set_write(method_.get(), write_raw) == 1 &&
                    BIO_meth_set_ctrl(method_.get(), control_raw) == 1;
  BIO* bio = good ? BIO_new(method_.get()) : nullptr;
  TW_CHECK(bio != nullptr, "no memory for a TLS connection");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (role == Role::kClient) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

std::unique_ptr<TlsStream> TlsStream::client(int fd, const TlsKey& key, const TlsLimits& limits) {
  std::unique_ptr<TlsStream> stream(new TlsStream(fd, Role::kClient, limits));
  stream->key_ = std::make_unique<TlsKey>(key);
  return stream;
}

std::unique_ptr<TlsStream> TlsStream::server(int fd, FindTlsKey find, std::string_view received,
                                             const TlsLimits& limits) {
  std::unique_ptr<TlsStream> stream(new TlsStream(fd, Role::kServer, limits));
  stream->find_ = std::move(find);
  stream->received_ = received;
  return stream;
}

SSL_SESSION* TlsStream::session_of(SSL* ssl, const TlsKey& key) {
  const SSL_CIPHER* suite = SSL_CIPHER_find(ssl, kSuiteNumber);
  SSL_SESSION* session = SSL_SESSION_new();
  if (suite != nullptr && session != nullptr &&
      SSL_SESSION_set1_master_key(session, key.bytes().data(), key.bytes().size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsStream::use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* size,
                       SSL_SESSION** session) {
  const TlsKey& key = *stream_of(ssl)->key_;
  *identity = reinterpret_cast<const unsigned char*>(key.identity().data());
  *size = key.identity().size();
  *session = session_of(ssl, key);
  return *session != nullptr ? 1 : 0;
}

int TlsStream::find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                        SSL_SESSION** session) {
  const TlsKey* key = stream_of(ssl)->find_({reinterpret_cast<const char*>(identity), size});
  *session = key != nullptr ? session_of(ssl, *key) : nullptr;
  return key == nullptr || *session != nullptr ? 1 : 0;
}

int TlsStream::read_raw(BIO* bio, char* bytes, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (!stream.received_.empty()) {
    const std::size_t taken = stream.received_.copy(bytes, static_cast<std::size_t>(size));
    stream.received_.erase(0, taken);
    return static_cast<int>(taken);
  }
  ssize_t got = -1;
  do {
    got = recv(stream.fd_, bytes, static_cast<std::size_t>(size), 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) stream.end_ = true;
  if (got >= 0) return static_cast<int>(got);
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    BIO_set_retry_read(bio);
  } else {
    stream.errno_ = errno;
  }
  return -1;
}

int TlsStream::write_raw(BIO* bio, const char* bytes, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  ssize_t sent = -1;
  do {
    sent = send(stream.fd_, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return static_cast<int>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    BIO_set_retry_write(bio);
  } else {
    stream.errno_ = errno;
  }
  return -1;
}

long TlsStream::control_raw(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<TlsStream*>(BIO_get_data(bio))->end_ ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

Result<bool> TlsStream::handshake() {
  if (open_) return true;
  ERR_clear_error();
  const int outcome = SSL_do_handshake(ssl_.get());
  if (outcome != 1) {
    auto waiting = wait_or_fail(outcome, read_events_);
    write_events_ = read_events_;
    if (!waiting.ok()) return waiting.error();
    return false;
  }
  read_events_ = POLLIN;
  write_events_ = POLLOUT;
  // Always true, because certificate verification fails. Checked because security depends on it.
  if (SSL_session_reused(ssl_.get()) != 1)
    return broken("did not prove that it knows this job's secret");
  open_ = true;
  key_.reset();
  find_ = {};
  return true;
}

Result<std::size_t> TlsStream::read(std::span<std::byte> bytes) {
  auto ready = handshake();
  if (!ready.ok()) return ready.error();
  if (!*ready) return std::size_t{0};
  ERR_clear_error();
  std::size_t got = 0;
  const int outcome = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &got);
  if (outcome != 1) return wait_or_fail(outcome, read_events_);
  read_events_ = POLLIN;
  return got;
}

Result<std::size_t> TlsStream::write(std::span<const std::byte> bytes) {
  auto ready = handshake();
  if (!ready.ok()) return ready.error();
  if (!*ready) return std::size_t{0};
  ERR_clear_error();
  if (unsent_ == 0 && records_ >= limits_.records_per_key) {
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
      return failure(SSL_ERROR_SSL);
    records_ = 0;
  }
  // A record that the kernel did not accept must be retried with the same bytes.
  const std::size_t size = unsent_ != 0 ? unsent_ : std::min(bytes.size(), kRecordBytes);
  if (size > bytes.size()) {
    return Error{
        ExitCode::kPeerLost,
        fmt::format("the last {} bytes must be sent again first, found {}", size, bytes.size())};
  }
  std::size_t sent = 0;
  const int outcome = SSL_write_ex(ssl_.get(), bytes.data(), size, &sent);
  if (outcome != 1) {
    unsent_ = size;
    return wait_or_fail(outcome, write_events_);
  }
  unsent_ = 0;
  ++records_;
  write_events_ = POLLOUT;
  return sent;
}

Result<std::size_t> TlsStream::wait_or_fail(int outcome, short& events) {
  const int code = SSL_get_error(ssl_.get(), outcome);
  if (code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE) return failure(code);
  events = code == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
  return std::size_t{0};
}

Error TlsStream::failure(int code) {
  const bool early = !open_;
  const unsigned long what = ERR_peek_error();
  ERR_clear_error();
  if (errno_ != 0) return broken(fmt::format("broke the connection: {}", std::strerror(errno_)));
  if (end_ || code == SSL_ERROR_ZERO_RETURN)
    return broken(early ? "closed the connection during the TLS handshake (does it use TLS, and "
                          "the same secret?)"
                        : "closed the connection");
  const char* text = ERR_reason_error_string(what);
  const std::string why = text != nullptr ? text : "no reason given";
  const int reason = ERR_GET_REASON(what);
  if (early && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                reason == SSL_R_UNSUPPORTED_PROTOCOL))
    return broken(fmt::format("does not use TLS 1.3, which this end requires ({})", why));
  if (early)
    return broken(fmt::format("did not prove that it knows this job's secret (TLS: {})", why));
  // OpenSSL numbers the alerts of the peer from SSL_AD_REASON_OFFSET.
  if (reason >= SSL_AD_REASON_OFFSET)
    return broken(fmt::format("ended the connection (TLS: {})", why));
  return broken(
      fmt::format("sent a record that cannot be decrypted: it may have been altered in transit "
                  "(TLS: {})",
                  why));
}

void TlsStream::end() {
  if (!open_ || unsent_ != 0) return;
  ERR_clear_error();
  SSL_shutdown(
      ssl_.get());  // if the kernel buffer is full, the peer sees only the end of the stream
  ERR_clear_error();
}

}  // namespace tilewright::net
