// Credentials for the API server: none, a token, a rotating token file, or an exec plugin.
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

// Thread-safe. Never logs secrets or puts them into error messages.
class Credentials {
 public:
  virtual ~Credentials() = default;
  // The bearer token for the next request; empty: no Authorization header. May run a plugin, at
  // most until `wait` ends.
  virtual Result<std::string> token(const net::Wait& wait) = 0;
  // Drops the cached token. Called after a 401 response.
  virtual void invalidate() {}
  // The client certificate found by the last token() call. Never blocks.
  virtual std::optional<ClientCertificate> certificate() const { return std::nullopt; }
  // Changes when the certificate changes. Connections made with an older certificate must be
  // closed.
  virtual std::uint64_t generation() const { return 0; }
};

std::shared_ptr<Credentials> no_credentials();
// Fails if the token is empty or contains spaces or control characters, which HTTP headers must not
// contain. `where` starts the error message: "kubeconfig:12: users[0].user.token".
Result<std::shared_ptr<Credentials>> static_token(std::string token, const std::string& where);
// Reads the file again after `refresh_interval` and after invalidate(). The kubelet renews the
// token well before it expires. If the file becomes unreadable, the last token stays in use.
Result<std::shared_ptr<Credentials>> token_file(
    const std::filesystem::path& path, Duration refresh_interval = std::chrono::minutes(1));

// Fails if `token` is not valid in an HTTP header. The message does not contain the token.
Status check_token(std::string_view token, const std::string& where);

}  // namespace tilewright::kube
