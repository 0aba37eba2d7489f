// The TLS side of a connection to the API server: whom it trusts and what it shows of itself.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "controller/kube/credentials.h"

namespace tilewright::kube {

// PEM from a file or as it stands; `file` wins and is read again for every new connection, so that
// renewed certificates come into use by themselves.
struct PemSource {
  std::string file;
  std::string text;
  bool empty() const { return file.empty() && text.empty(); }
};

struct TlsSettings {
  PemSource authorities;  // empty: the system's
  bool verify = true;
  std::string server_name;  // whose certificate it must be; empty: the host of the URL
  PemSource certificate, key;
};

// Prepares a context of one connection; `from_plugin` takes the place of certificate and key.
// Clusters are trusted by their own authorities only, never by the system's as well.
Status prepare_tls(SSL_CTX* context, const TlsSettings& settings,
                   const std::optional<ClientCertificate>& from_plugin);

// cpprestsdk reads the system's authorities for every connection, parsing 140 certificates for a
// tenth of a second or more in its only thread. This points OpenSSL's default at an empty file, by
// $SSL_CERT_FILE, so that prepare_tls() reads them itself where they are wanted. Call it before
// there are threads that read the environment.
void spare_system_authorities();
// Where they really are: what $SSL_CERT_FILE was before that, or OpenSSL's default. For child
// processes, too.
const std::string& system_authorities_file();
inline constexpr const char* kCertFileVariable = "SSL_CERT_FILE";

// Trusts the certificates of `file`, and those in `folders` (with colons between them) that stand
// there under their hash, which OpenSSL reads when it looks for one. A system may have only one of
// the two; it is an error when it has neither.
Status trust_system(SSL_CTX* context, const std::string& file, const std::string& folders);

// Why the last handshake was refused, in OpenSSL's words: cpprestsdk tells only that it was.
struct HandshakeLog {
  std::string last_refusal;
};
// `log` must outlive the context's connections, and one thread must run them all.
void log_refusals(SSL_CTX* context, HandshakeLog* log);

}  // namespace tilewright::kube
