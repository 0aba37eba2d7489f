// The proof that both ends of a connection know the secret of a job.
//
// Server -> client: "TWA1", server nonce (32 bytes)
// Client -> server: client nonce (32), HMAC-SHA256(key, client role, context, both nonces) (32)
// Server -> client: HMAC-SHA256(key, server role, context, both nonces) (32)
//
// The client proves first, so an unauthenticated client receives only a random number. The role in
// the MAC prevents reflection, the nonces prevent replay, and the context binds a proof to one
// purpose and one job. The proof authenticates the two ends, not the data that follows; against an
// attacker who can alter packets use TLS (tls.h), which then also carries the proof.
#pragma once

#include <string>
#include <string_view>

#include "common/net/secret.h"
#include "common/net/socket.h"

namespace tilewright::net {

// The greeting of a server that requires TLS, sent unencrypted in place of "TWA1".
inline constexpr std::string_view kTlsGreeting = "TWS1";

enum class Role { kClient, kServer };

// One end of the proof as a state machine without I/O: send take_output(), feed the received bytes.
class Handshake {
 public:
  Handshake(Role role, const SecretKey& key, std::string_view context);
  // The bytes to send next; empty: none.
  std::string take_output();
  // How many bytes to read next; 0 when the proof is complete.
  std::size_t wanted() const { return wanted_; }
  // Takes exactly wanted() bytes. Returns an Error (kPeerLost; the message does not name the peer)
  // if the other end failed the proof; the caller then closes the connection.
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

// Runs the proof on a new connection. After an Error the caller closes the socket.
Status authenticate(Socket& socket, Role role, const SecretKey& key, std::string_view context,
                    const Wait& wait);

}  // namespace tilewright::net
