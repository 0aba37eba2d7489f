// Who this process is to the API server: nobody, a token, a token file that rotates, or a plugin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/net/wait.h"

namespace tilewright::kube {

struct ClientCertificate {
  std::string certificate_pem;  // the leaf, then its chain
  std::string key_pem;
  bool operator==(const ClientCertificate&) const = default;
};

// Thread-safe. Secrets leave it only as return values.
class Credentials {
 public:
  virtual ~Credentials() = default;
  // The bearer token of the next request; empty: none is sent. May run a plugin, until `wait` ends.
  virtual Result<std::string> token(const net::Wait& wait) = 0;
  // The server refused the token: what is cached is not used again.
  virtual void refused() {}
  // As the last token() found it; never blocks.
  virtual std::optional<ClientCertificate> certificate() const { return std::nullopt; }
  // Another number once that is another one: connections that were made with the one before are of
  // no more use.
  virtual std::uint64_t generation() const { return 0; }
};

std::shared_ptr<Credentials> no_credentials();
// Refused: an empty token, or one with blanks or control characters, which would break the header.
// `where` stands in the sentence: "kubeconfig:12: users[0].user.token".
Result<std::shared_ptr<Credentials>> static_token(std::string token, const std::string& where);
// Read again after a minute, as the kubelet renews it well before it expires, and when refused. A
// file that cannot be read later on leaves the last token in use.
Result<std::shared_ptr<Credentials>> token_file(const std::filesystem::path& path,
                                                Duration fresh_for = std::chrono::minutes(1));

// One sentence if `token` cannot stand in a header; it never holds the token.
Status check_token(std::string_view token, const std::string& where);

}  // namespace tilewright::kube
