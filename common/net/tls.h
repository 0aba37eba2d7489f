// TLS 1.3 without certificates: both ends of a connection hold a key derived from the job's secret
// (an external PSK, RFC 8446 section 2.2), mixed with a fresh Diffie-Hellman exchange, so that who
// learns the secret later reads nothing of what was sent before.
//
// Socket::connect_tls and accept_tls put a connection under it; the calls of Socket stay the same.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/net/secret.h"

namespace tilewright::net {

// The key of one purpose of one job; its memory is wiped when it goes.
class TlsKey {
 public:
  // Another context ("rendezvous of job 3f2a...") gives another key: one purpose's cannot be used
  // for another's.
  TlsKey(const SecretKey& secret, std::string_view context);
  ~TlsKey();
  TlsKey(const TlsKey&) = default;
  TlsKey& operator=(const TlsKey&) = default;

  // What a client shows before anything is encrypted: bytes that only those who know the secret
  // can tell from random ones. The same for all connections of a purpose.
  const std::string& identity() const { return identity_; }
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  std::string identity_;
  std::array<unsigned char, 32> bytes_{};
};

// A server's keys by what a client shows; nullptr: none of these. The key is read during the call.
using FindTlsKey = std::function<const TlsKey*(std::string_view identity)>;

struct TlsLimits {
  // Records of 16 KiB at most under one key. AES-GCM is good for 2^24.5 of them (RFC 8446 section
  // 5.5); gradients of 400 MB reach that within a thousand steps, so the key is renewed before.
  std::uint64_t records_per_key = std::uint64_t{1} << 23;
};

// Whether a connection begins with a TLS client's words; `begin` has at least two bytes.
inline bool is_tls_hello(std::string_view begin) {
  return begin.size() >= 2 && begin[0] == '\x16' && begin[1] == '\x03';
}

}  // namespace tilewright::net
