#include "common/net/handshake.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include "common/net/unsigned_bytes.h"

namespace tilewright::net {
namespace {

constexpr std::string_view kGreeting = "TWA1";
static_assert(kGreeting.size() == kTlsGreeting.size());
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMacBytes = sizeof(Mac);

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  TW_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes) == 1,
           "no random numbers from OpenSSL");
  return nonce;
}

std::string_view as_text(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

}  // namespace

Handshake::Handshake(Role role, const SecretKey& key, std::string_view context)
    : role_(role), key_(key.clone()), context_(context) {
  if (role == Role::kServer) {
    server_nonce_ = random_nonce();
    output_ = std::string(kGreeting) + server_nonce_;
    wanted_ = kNonceBytes + kMacBytes;
  } else {
    wanted_ = kGreeting.size();
  }
}

std::string Handshake::take_output() { return std::exchange(output_, {}); }

Mac Handshake::proof(Role role) const {
  // The length makes the boundary between the context and the nonces unambiguous.
  return hmac_sha256(key_, fmt::format("tilewright proof 1 {} {} {}{}{}",
                                       role == Role::kClient ? "client" : "server", context_.size(),
                                       context_, server_nonce_, client_nonce_));
}

Status Handshake::feed(std::string_view bytes) {
  TW_CHECK(bytes.size() == wanted_ && wanted_ > 0, "{} bytes fed to a handshake that expects {}",
           bytes.size(), wanted_);
  const auto refuse = [](const char* why) { return Error{ExitCode::kPeerLost, why}; };
  if (role_ == Role::kServer) {
    client_nonce_ = bytes.substr(0, kNonceBytes);
    if (!equal_in_constant_time(as_unsigned(bytes.substr(kNonceBytes)), proof(Role::kClient))) {
      return refuse("did not prove that it knows this job's secret");
    }
    output_ = as_text(proof(Role::kServer));
    wanted_ = 0;
  } else if (wanted_ == kGreeting.size()) {
    if (bytes == kTlsGreeting) return refuse("requires TLS, which this end does not use");
    if (bytes != kGreeting) return refuse("does not speak this protocol");
    wanted_ = kNonceBytes;
  } else if (server_nonce_.empty()) {
    server_nonce_ = bytes;
    client_nonce_ = random_nonce();
    output_ = client_nonce_ + std::string(as_text(proof(Role::kClient)));
    wanted_ = kMacBytes;
  } else {
    if (!equal_in_constant_time(as_unsigned(bytes), proof(Role::kServer))) {
      return refuse("did not prove that it knows this job's secret");
    }
    wanted_ = 0;
  }
  return {};
}

Status authenticate(Socket& socket, Role role, const SecretKey& key, std::string_view context,
                    const Wait& wait) {
  Handshake handshake(role, key, context);
  while (true) {
    const std::string output = handshake.take_output();
    if (auto status = socket.write_all(std::as_bytes(std::span(output)), wait); !status.ok()) {
      return status;
    }
    if (handshake.complete()) return {};
    std::string input(handshake.wanted(), '\0');
    if (auto status = socket.read_exact(std::as_writable_bytes(std::span(input)), wait);
        !status.ok()) {
      return Error{status.error().code, status.error().message +
                                            " during the proof of the job's secret (do both "
                                            "ends have the same one?)"};
    }
    if (auto status = handshake.feed(input); !status.ok()) {
      return Error{status.error().code,
                   fmt::format("{} {}", socket.peer(), status.error().message)};
    }
  }
}

}  // namespace tilewright::net
