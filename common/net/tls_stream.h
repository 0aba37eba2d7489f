// One connection's TLS: OpenSSL over a non-blocking descriptor; for this room only.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <string>

#include "common/net/tls.h"

namespace tilewright::net {

class TlsStream {
 public:
  // Takes the key's bytes; shows its identity.
  static std::unique_ptr<TlsStream> client(int fd, const TlsKey& key, const TlsLimits& limits);
  // `received` was read from the connection before it was known to be TLS.
  static std::unique_ptr<TlsStream> server(int fd, FindTlsKey find, std::string_view received,
                                           const TlsLimits& limits);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // As Socket::try_read and try_write; an Error's sentence begins with a verb, for after the peer's
  // name. Both also take the handshake as far as it goes.
  Result<std::size_t> read(std::span<std::byte> bytes);
  Result<std::size_t> write(std::span<const std::byte> bytes);
  // True when both ends have shown that they know the key.
  Result<bool> handshake();

  // What poll(2) has to watch so that the last read, or write, that gave 0 can go on.
  short read_events() const { return read_events_; }
  short write_events() const { return write_events_; }
  // Bytes have been read from the descriptor that read() has not looked at.
  bool buffered() const { return !received_.empty() || SSL_pending(ssl_.get()) > 0; }
  // Tells the peer that nothing more comes.
  void end();

 private:
  TlsStream(int fd, bool client, const TlsLimits& limits);

  // OpenSSL's callbacks.
  static int use_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                     std::size_t* size, SSL_SESSION** session);
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session);
  static int read_raw(BIO* bio, char* bytes, int size);
  static int write_raw(BIO* bio, const char* bytes, int size);
  static long control_raw(BIO* bio, int command, long number, void* pointer);

  static SSL_SESSION* session_of(SSL* ssl, const TlsKey& key);
  // After a call of OpenSSL's that gave `outcome` <= 0: 0 (wait for `events`) or what is wrong.
  Result<std::size_t> wait_or_fail(int outcome, short& events);
  Error failure(int code);

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
  };
  const int fd_;
  const TlsLimits limits_;
  std::unique_ptr<TlsKey> key_;  // a client's
  FindTlsKey find_;              // a server's
  std::string received_;         // to be read before the descriptor is
  int errno_ = 0;                // of the descriptor's last failure
  bool end_ = false;             // the peer closed its end
  bool open_ = false;            // the handshake was completed
  short read_events_, write_events_;
  std::size_t unsent_ = 0;     // plain bytes of the record that the kernel has not taken yet
  std::uint64_t records_ = 0;  // sent under the present key
  std::unique_ptr<BIO_METHOD, Free> method_;
  std::unique_ptr<SSL, Free> ssl_;  // goes first
};

}  // namespace tilewright::net
