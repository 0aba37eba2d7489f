// TLS of one connection: OpenSSL over a non-blocking descriptor. Private to this module.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <string>

#include "common/net/tls.h"

namespace tilewright::net {

class TlsStream {
 public:
  // The client copies the key and sends its identity.
  static std::unique_ptr<TlsStream> client(int fd, const TlsKey& key, const TlsLimits& limits);
  // `received`: bytes read from the connection before TLS was detected.
  static std::unique_ptr<TlsStream> server(int fd, FindTlsKey find, std::string_view received,
                                           const TlsLimits& limits);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Like Socket::try_read and try_write. Error messages begin with a verb; the caller puts the
  // peer's name in front. Both also continue the handshake.
  Result<std::size_t> read(std::span<std::byte> bytes);
  Result<std::size_t> write(std::span<const std::byte> bytes);
  // True when the handshake is complete: both ends have proved that they know the key.
  Result<bool> handshake();

  // The events to poll for before the next read() or write() after one returned 0.
  short read_events() const { return read_events_; }
  short write_events() const { return write_events_; }
  // Whether bytes have been read from the descriptor but not yet returned by read().
  bool buffered() const { return !received_.empty() || SSL_pending(ssl_.get()) > 0; }
  // Sends close_notify.
  void end();

 private:
  enum class Role { kClient, kServer };

  TlsStream(int fd, Role role, const TlsLimits& limits);

  // What all connections of this process share. It holds no key: the callbacks take the key from
  // the connection. One for each connection would take half of a connection's memory.
  static SSL_CTX* shared_context(Role role);
  static SSL_CTX* make_context(Role role);

  // OpenSSL's callbacks.
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                     std::size_t* size, SSL_SESSION** session);
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session);
  static int read_raw(BIO* bio, char* bytes, int size);
  static int write_raw(BIO* bio, const char* bytes, int size);
  static long control_raw(BIO* bio, int command, long number, void* pointer);

  static SSL_SESSION* session_of(SSL* ssl, const TlsKey& key);
  // After an OpenSSL call that returned `outcome` <= 0: returns 0 and sets the events to wait for,
  // or the Error.
  Result<std::size_t> wait_or_fail(int outcome, short& events);
  Error failure(int code);

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
  };
  const int fd_;
  const TlsLimits limits_;
  std::unique_ptr<TlsKey> key_;  // client only
  FindTlsKey find_;              // server only
  std::string received_;         // OpenSSL reads these bytes before the descriptor
  int errno_ = 0;                // of the last failed call on the descriptor
  bool end_ = false;             // the peer closed its end
  bool open_ = false;            // the handshake is complete
  short read_events_, write_events_;
  std::size_t unsent_ = 0;     // plaintext bytes of the record that the kernel has not accepted yet
  std::uint64_t records_ = 0;  // sent under the current key
  std::unique_ptr<BIO_METHOD, Free> method_;
  std::unique_ptr<SSL, Free> ssl_;  // last, so destroyed first: it uses method_
};

}  // namespace tilewright::net
