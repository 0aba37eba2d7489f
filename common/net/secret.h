// The secret of a job and the proof that both ends of a connection know it.
//
// Server -> client: "TWA1", server nonce (32 bytes)
// Client -> server: client nonce (32), HMAC-SHA256(key, client role, context, both nonces) (32)
// Server -> client: HMAC-SHA256(key, server role, context, both nonces) (32)
//
// The client proves first, so a stranger gets nothing but a random number. The role inside the MAC
// stops reflection, the nonces stop replay, the context binds a proof to one purpose and one job.
// It authenticates the ends, not what follows: against somebody who can alter packets there is TLS
// (tls.h), and then the proof runs inside it.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/net/socket.h"

namespace tilewright::net {

// Never printed; its memory is wiped when it goes.
class SecretKey {
 public:
  static constexpr std::size_t kMinBytes = 16;
  static constexpr std::size_t kMaxBytes = 4096;

  // All bytes of the file as they are. Errors (kUsage) name the path, never the content.
  static Result<SecretKey> from_file(const std::filesystem::path& path);
  static Result<SecretKey> from_bytes(std::string_view bytes);
  static SecretKey random();  // 32 bytes of the system's generator

  ~SecretKey();
  SecretKey(SecretKey&&) noexcept = default;
  SecretKey& operator=(SecretKey&& other) noexcept;
  SecretKey(const SecretKey&) = delete;
  SecretKey& operator=(const SecretKey&) = delete;
  SecretKey clone() const;
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  explicit SecretKey(std::vector<unsigned char> bytes) : bytes_(std::move(bytes)) {}
  std::vector<unsigned char> bytes_;
};

using Mac = std::array<unsigned char, 32>;
Mac hmac_sha256(const SecretKey& key, std::string_view bytes);
// RFC 5869: fills `output` (at most 255 x 32 bytes) with bytes derived from the secret.
void hkdf_sha256(const SecretKey& secret, std::string_view salt, std::string_view info,
                 std::span<unsigned char> output);
bool equal_in_constant_time(std::span<const unsigned char> a, std::span<const unsigned char> b);

// A server that speaks TLS only may say this, in the clear, where a client expects its first word.
inline constexpr std::string_view kTlsGreeting = "TWS1";

enum class Role { kClient, kServer };

// One end of the proof as a state machine without I/O: send what output() gives, feed what comes.
class Handshake {
 public:
  Handshake(Role role, const SecretKey& key, std::string_view context);
  // Bytes that wait to be sent; empty when there are none.
  std::string take_output();
  // Exactly this many bytes are to be read next; 0 when the proof is complete.
  std::size_t wanted() const { return wanted_; }
  // Takes exactly wanted() bytes. An Error (kPeerLost; the sentence does not name the peer) when
  // the other end did not prove itself: drop the connection.
  Status feed(std::string_view bytes);
  bool complete() const { return wanted_ == 0; }

 private:
  Mac proof(Role role) const;

  Role role_;
  SecretKey key_;
  std::string context_;
  std::string server_nonce_, client_nonce_;
  std::string output_;
  std::size_t wanted_;
};

// The whole proof on a fresh connection. On an Error the caller drops the socket.
Status authenticate(Socket& socket, Role role, const SecretKey& key, std::string_view context,
                    const Wait& wait);

}  // namespace tilewright::net
