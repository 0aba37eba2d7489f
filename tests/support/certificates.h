// A certificate authority of the tests' own, made in process: what a control plane and its clients
// prove who they are with.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tilewright::testing {

// A certificate and its private key, in PEM.
struct CertificatePaths {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

class CertificateAuthority {
 public:
  // Makes a new key and writes ca.crt into `folder`. Everything here throws std::runtime_error when
  // OpenSSL or the disk refuses.
  explicit CertificateAuthority(const std::filesystem::path& folder);
  ~CertificateAuthority();
  CertificateAuthority(const CertificateAuthority&) = delete;
  CertificateAuthority& operator=(const CertificateAuthority&) = delete;

  const std::filesystem::path& certificate() const { return certificate_; }

  // NAME.crt and NAME.key for a server. `names` as X.509 has them: IP:127.0.0.1, DNS:localhost.
  CertificatePaths issue_server(const std::string& name, const std::vector<std::string>& names);
  // NAME.crt and NAME.key for a client: to an API server the common name is the user, and the
  // organizations are its groups.
  CertificatePaths issue_client(const std::string& name, const std::vector<std::string>& groups);

 private:
  struct Keys;
  struct Request;
  CertificatePaths issue(const Request& request);

  std::filesystem::path folder_;
  std::filesystem::path certificate_;
  std::unique_ptr<Keys> keys_;
};

// A pair of keys alone, in PEM: an API server signs its service accounts' tokens with the one and
// checks them with the other.
void write_signing_keys(const std::filesystem::path& private_key,
                        const std::filesystem::path& public_key);

}  // namespace tilewright::testing
