// TLS 1.3 without certificates: both ends of a connection have a key derived from the job's secret
// (an external PSK, RFC 8446 section 2.2), combined with an ephemeral Diffie-Hellman exchange, so
// that a secret that leaks later does not decrypt earlier traffic.
//
// Socket::connect_tls and accept_tls start TLS on a connection.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/net/secret.h"

namespace tilewright::net {

// The key for one purpose of one job; its memory is erased on destruction.
class TlsKey {
 public:
  // Each context ("rendezvous of job 3f2a...") gives a different key.
  TlsKey(const SecretKey& secret, std::string_view context);
  ~TlsKey();
  TlsKey(const TlsKey&) = default;
  TlsKey& operator=(const TlsKey&) = default;

  // The PSK identity, which a client sends unencrypted: 32 bytes that look random without the
  // secret, the same for all connections of one purpose.
  const std::string& identity() const { return identity_; }
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  std::string identity_;
  std::array<unsigned char, 32> bytes_{};
};

// Finds a server's key by the client's PSK identity; nullptr: unknown. The handshake copies the key
// immediately.
using FindTlsKey = std::function<const TlsKey*(std::string_view identity)>;

struct TlsLimits {
  // Records (of at most 16 KiB) sent with one key. AES-GCM allows 2^24.5 (RFC 8446 section 5.5),
  // which gradients of 400 MB reach within a thousand steps, so the sender updates its key earlier.
  std::uint64_t records_per_key = std::uint64_t{1} << 23;
};

// Whether a connection begins with a TLS ClientHello. Needs two bytes; false for fewer.
inline bool is_tls_hello(std::string_view begin) {
  return begin.size() >= 2 && begin[0] == '\x16' && begin[1] == '\x03';
}

}  // namespace tilewright::net
