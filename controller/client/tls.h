// TLS settings of connections to the API server: trusted CAs and client certificates.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "controller/client/credentials.h"

namespace tilewright::kube {

// PEM from a file or inline. `file` takes precedence and is read for every new connection, so that
// renewed certificates take effect without a restart.
struct PemSource {
  std::string file;
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

// The PEM text; empty if there is none. Errors have code kUsage and name the file.
Result<std::string> read_pem(const PemSource& source);

struct TlsSettings {
  PemSource authorities;  // CAs; empty: those of the system
  bool verify = true;
  std::string server_name;  // name that the certificate must match; empty: the host of the URL
  PemSource certificate, key;
};

// Configures the context of one connection. `from_plugin` replaces certificate and key. A cluster
// with its own CA is verified by that CA only, not by the CAs of the system.
Status prepare_tls(SSL_CTX* context, const TlsSettings& settings,
                   const std::optional<ClientCertificate>& from_plugin);

// Sets $SSL_CERT_FILE to an empty file. Without it cpprestsdk loads the CAs of the system for every
// connection: about 140 certificates, 0.1 s or more in its only thread. prepare_tls() loads them
// when they are needed. Call this before other threads read the environment.
void disable_default_ca_file();
// The CA file of the system: the original $SSL_CERT_FILE or OpenSSL's default. Child processes need
// it in their environment.
const std::string& system_ca_file();

// Trusts the certificates in `file` and the hashed certificates in `directories` (separated by
// colons), which OpenSSL reads on demand. Fails if neither contains a certificate.
Status trust_system_authorities(SSL_CTX* context, const std::string& file,
                                const std::string& directories);

// OpenSSL's reason for the last failed verification. cpprestsdk does not report it.
struct HandshakeLog {
  std::string last_verify_error;
};
// `log` must outlive the connections of the context. All of them must run on one thread.
void record_verify_errors(SSL_CTX* context, HandshakeLog* log);

}  // namespace tilewright::kube
