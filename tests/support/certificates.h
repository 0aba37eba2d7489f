// A test certificate authority, created in process, for a control plane and its clients.
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
  // Creates a new key and writes ca.crt into `folder`. All functions throw std::runtime_error on
  // OpenSSL and file errors.
  explicit CertificateAuthority(const std::filesystem::path& folder);
  ~CertificateAuthority();
  CertificateAuthority(const CertificateAuthority&) = delete;
  CertificateAuthority& operator=(const CertificateAuthority&) = delete;

  const std::filesystem::path& certificate() const { return certificate_; }

  // Issues NAME.crt and NAME.key for a server. `names` in X.509 form: IP:127.0.0.1, DNS:localhost.
  CertificatePaths issue_server(const std::string& name, const std::vector<std::string>& names);
  // Issues NAME.crt and NAME.key for a client. The API server reads the common name as the user and
  // the organizations as its groups.
  CertificatePaths issue_client(const std::string& name, const std::vector<std::string>& groups);

 private:
  struct Keys;
  struct Request;
  CertificatePaths issue(const Request& request);

  std::filesystem::path folder_;
  std::filesystem::path certificate_;
  std::unique_ptr<Keys> keys_;
};

// Writes only a key pair, in PEM: an API server signs service account tokens with the private key
// and verifies them with the public key.
void write_signing_keys(const std::filesystem::path& private_key,
                        const std::filesystem::path& public_key);

}  // namespace tilewright::testing
