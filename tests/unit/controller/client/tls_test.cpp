// Tests of server verification and client certificates.
#include "controller/client/tls.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "controller/client/exec_plugin.h"
#include "tests/support/certificates.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
Certificate certificate_of(const std::filesystem::path& path) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> file(BIO_new_file(path.c_str(), "r"),
                                                           BIO_free_all);
  return {PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr), X509_free};
}

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
Context new_context() { return {SSL_CTX_new(TLS_client_method()), SSL_CTX_free}; }

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    const auto paths = authority.issue_server("server", {"IP:127.0.0.1", "DNS:kubernetes"});
    use(paths);
  }
  void use(const testing::CertificatePaths& paths) {
    SSL_CTX_use_certificate_file(server_tls.get(), paths.certificate.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(server_tls.get(), paths.key.c_str(), SSL_FILETYPE_PEM);
  }
  ApiResult<Json> get_pod(const ClusterConfig& config) {
    SenderOptions options = no_retry_delay();
    options.retry.attempts = 1;
    auto client = Client::make(config, options);
    if (!client) {
      ApiError error;
      error.message = client.error().message;
      return error;
    }
    return (*client)->get(resource::pods(), "ns", "a", soon());
  }
  ClusterConfig trusting(const ScriptedServer& server) {
    ClusterConfig config = config_for(server);
    config.tls.authorities.file = authority.certificate();
    return config;
  }

  testing::TemporaryDirectory directory;
  testing::CertificateAuthority authority{directory.path()};
  Context server_tls{SSL_CTX_new(TLS_server_method()), SSL_CTX_free};
  static void answer(ScriptedConnection& connection, const ScriptedRequest&) {
    connection.answer(200, "{}");
  }
};

TEST_F(TlsTest, TrustsTheClustersAuthority) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  auto object = get_pod(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
  config.tls.authorities = {"", testing::read_text(authority.certificate())};
  object = get_pod(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
}

TEST_F(TlsTest, RejectsAServerOfAnotherAuthority) {
  const testing::TemporaryDirectory other_directory;
  const testing::CertificateAuthority other(other_directory.path());
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  config.tls.authorities.file = other.certificate();
  const auto object = get_pod(config);
  ASSERT_TRUE(object.is(ErrorKind::kTransport));
  EXPECT_THAT(object.error().message, HasSubstr("certificate"));
  EXPECT_TRUE(server.requests().empty());
  config.tls.authorities = {};
  EXPECT_TRUE(get_pod(config).is(ErrorKind::kTransport)) << "not trusted by the system either";
}

// True if a connection with this context accepts the certificate.
bool trusts(SSL_CTX* context, const std::filesystem::path& path) {
  const auto certificate = certificate_of(path);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> check(X509_STORE_CTX_new(),
                                                                              X509_STORE_CTX_free);
  X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context), certificate.get(), nullptr);
  return X509_verify_cert(check.get()) == 1;
}

TEST_F(TlsTest, LoadsSystemAuthoritiesFromFileOrHashedDirectory) {
  const auto server = directory.path() / "server.crt";
  const auto hashed = directory.path() / "hashed";
  std::filesystem::create_directory(hashed);
  const auto hash = X509_subject_name_hash(certificate_of(authority.certificate()).get());
  std::filesystem::copy_file(authority.certificate(), hashed / fmt::format("{:08x}.0", hash));
  const std::string nowhere = directory.path() / "nowhere";

  const auto by_hash = new_context();
  const Status directory_only =
      trust_system_authorities(by_hash.get(), nowhere, nowhere + ":" + hashed.string());
  EXPECT_TRUE(directory_only) << directory_only.error().message;
  EXPECT_TRUE(trusts(by_hash.get(), server));
  EXPECT_EQ(ERR_peek_error(), 0U) << "the OpenSSL error queue must be empty";

  const auto by_file = new_context();
  EXPECT_TRUE(trust_system_authorities(by_file.get(), authority.certificate(), nowhere));
  EXPECT_TRUE(trusts(by_file.get(), server));

  const auto none = new_context();
  const Status rejected = trust_system_authorities(none.get(), nowhere, directory.path());
  ASSERT_FALSE(rejected) << "certificates under other names are not found";
  EXPECT_THAT(rejected.error().message, HasSubstr(nowhere + ": found no PEM certificate"));
  EXPECT_FALSE(trusts(none.get(), server));
}

TEST_F(TlsTest, RejectsACertificateForAnotherName) {
  use(authority.issue_server("elsewhere", {"DNS:elsewhere"}));
  ScriptedServer server(answer, server_tls.get());
  const auto object = get_pod(trusting(server));
  ASSERT_TRUE(object.is(ErrorKind::kTransport));
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(TlsTest, VerifiesTheConfiguredServerName) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  config.tls.server_name = "kubernetes";
  EXPECT_TRUE(get_pod(config).ok());
  config.tls.server_name = "other";
  EXPECT_FALSE(get_pod(config).ok());
}

TEST_F(TlsTest, SkipsVerificationIfConfigured) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = config_for(server);
  config.tls.verify = false;
  EXPECT_TRUE(get_pod(config).ok());
}

TEST_F(TlsTest, PresentsItsClientCertificate) {
  SSL_CTX_load_verify_locations(server_tls.get(), authority.certificate().c_str(), nullptr);
  SSL_CTX_set_verify(server_tls.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  EXPECT_FALSE(get_pod(config).ok());
  const auto paths = authority.issue_client("me", {});
  config.tls.certificate.file = paths.certificate;
  config.tls.key.file = paths.key;
  const auto object = get_pod(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
}

// A server that requires client certificates and accepts one common name.
class CertificateRenewal : public TlsTest {
 protected:
  CertificateRenewal() {
    SSL_CTX_load_verify_locations(server_tls.get(), authority.certificate().c_str(), nullptr);
    SSL_CTX_set_verify(server_tls.get(), SSL_VERIFY_PEER, nullptr);
  }
  // Issues a certificate with the common name `name`.
  void issue(const std::string& name) {
    const auto paths = authority.issue_client(name, {});
    fs::copy_file(paths.certificate, certificate, fs::copy_options::overwrite_existing);
    fs::copy_file(paths.key, key, fs::copy_options::overwrite_existing);
  }
  void use_plugin(ClusterConfig& config, const std::string& expires) {
    ExecPlugin plugin;
    plugin.program = "/usr/bin/python3";
    plugin.arguments = {"-c", R"(import json, sys
status = {"clientCertificateData": open(sys.argv[1]).read(), "clientKeyData": open(sys.argv[2]).read()}
if sys.argv[3]: status["expirationTimestamp"] = sys.argv[3]
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})))",
                        certificate, key, expires};
    plugin.where = "test";
    config.credentials = exec_credentials(plugin);
  }

  const fs::path certificate = directory.path() / "client.crt";
  const fs::path key = directory.path() / "client.key";
  std::mutex mutex;
  std::string accepted_name = "first";
  std::vector<std::string> presented_names;
  ScriptedServer server{[this](ScriptedConnection& connection, const ScriptedRequest&) {
                          const std::lock_guard lock(mutex);
                          presented_names.push_back(connection.client_name());
                          if (presented_names.back() == accepted_name) {
                            return connection.answer(200, "{}");
                          }
                          connection.answer(401, status_text(401, "Unauthorized"));
                        },
                        server_tls.get()};
  void accept_name(const std::string& name) {
    const std::lock_guard lock(mutex);
    accepted_name = name;
  }
  void expect_renewal(const ClusterConfig& config, const std::vector<std::string>& expected) {
    issue("first");
    const auto client = Client::make(config, no_retry_delay()).or_throw();
    const auto get_pod = [&client] { return client->get(resource::pods(), "ns", "a", soon()); };
    ASSERT_TRUE(get_pod().ok());
    issue("second");
    accept_name("second");
    const auto object = get_pod();
    EXPECT_TRUE(object.ok()) << object.error().sentence();
    EXPECT_TRUE(get_pod().ok());
    const std::lock_guard lock(mutex);
    EXPECT_EQ(presented_names, expected);
  }
};

TEST_F(CertificateRenewal, OfFilesTakesEffectWhenTheOldCertificateIsRejected) {
  ClusterConfig config = trusting(server);
  config.tls.certificate.file = certificate;
  config.tls.key.file = key;
  expect_renewal(config, {"first", "first", "second", "second"});
}

TEST_F(CertificateRenewal, ByAPluginTakesEffectWhenTheOldCertificateIsRejected) {
  ClusterConfig config = trusting(server);
  use_plugin(config, "");
  expect_renewal(config, {"first", "first", "second", "second"});
}

TEST_F(CertificateRenewal, ByAPluginTakesEffectWhenTheOldCertificateExpires) {
  ClusterConfig config = trusting(server);
  use_plugin(config, "2001-01-01T00:00:00Z");
  expect_renewal(config, {"first", "second", "second"});
}

TEST_F(TlsTest, ReportsTheUnusableFile) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  const auto paths = authority.issue_client("me", {});
  const auto other_paths = authority.issue_client("you", {});
  config.tls.certificate.file = paths.certificate;
  config.tls.key.file = other_paths.key;
  EXPECT_THAT(get_pod(config).error().message, HasSubstr(other_paths.key.string()));
  config.tls.key.file = paths.certificate;
  EXPECT_THAT(get_pod(config).error().message, HasSubstr("no PEM private key"));
  config.tls.authorities.file = paths.key;
  EXPECT_THAT(get_pod(config).error().message, HasSubstr("no PEM certificate"));
  config.tls.authorities.file = "/not/there";
  EXPECT_THAT(get_pod(config).error().message, HasSubstr("/not/there"));
}

TEST_F(TlsTest, ReportsATruncatedTlsStreamAsTransportError) {
  ScriptedServer server(
      [](auto& connection, const auto&) {
        connection.begin_chunks();
        connection.chunk("{}");
        connection.hang_up();
      },
      server_tls.get());
  EXPECT_TRUE(get_pod(trusting(server)).is(ErrorKind::kTransport));
}

TEST_F(TlsTest, ReusesItsConnection) {
  ScriptedServer server(answer, server_tls.get());
  const auto client = Client::make(trusting(server), no_retry_delay()).or_throw();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->get(resource::pods(), "ns", "a", soon()).ok());
  }
  for (const auto& request : server.requests()) EXPECT_EQ(request.connection, 0);
}

}  // namespace
}  // namespace tilewright::kube
