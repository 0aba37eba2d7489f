// Whom the client trusts, and what it shows of itself.
#include "controller/kube/tls.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "controller/kube/exec_plugin.h"
#include "tests/support/certificates.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/kube/client_fixtures.h"

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
  ApiResult<Json> ask(const ClusterConfig& config) {
    SenderOptions options = impatient();
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

  testing::TemporaryDirectory folder;
  testing::CertificateAuthority authority{folder.path()};
  Context server_tls{SSL_CTX_new(TLS_server_method()), SSL_CTX_free};
  static void answer(ScriptedConnection& connection, const ScriptedRequest&) {
    connection.answer(200, "{}");
  }
};

TEST_F(TlsTest, TrustsTheClustersAuthority) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  auto object = ask(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
  config.tls.authorities = {"", testing::read_text(authority.certificate())};
  object = ask(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
}

TEST_F(TlsTest, RefusesAServerOfAnotherAuthority) {
  const testing::TemporaryDirectory other_folder;
  const testing::CertificateAuthority other(other_folder.path());
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  config.tls.authorities.file = other.certificate();
  const auto object = ask(config);
  ASSERT_TRUE(object.is(Problem::kTransport));
  EXPECT_THAT(object.error().message, HasSubstr("certificate"));
  EXPECT_TRUE(server.requests().empty());
  config.tls.authorities = {};
  EXPECT_TRUE(ask(config).is(Problem::kTransport)) << "nor does the system know it";
}

// Whether a connection with this context would take the certificate.
bool trusts(SSL_CTX* context, const std::filesystem::path& path) {
  const auto certificate = certificate_of(path);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> check(X509_STORE_CTX_new(),
                                                                              X509_STORE_CTX_free);
  X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context), certificate.get(), nullptr);
  return X509_verify_cert(check.get()) == 1;
}

TEST_F(TlsTest, TrustsASystemThatHasItsAuthoritiesInAFileOrByTheirHash) {
  const auto server = folder.path() / "server.crt";
  const auto hashed = folder.path() / "hashed";
  std::filesystem::create_directory(hashed);
  const auto hash = X509_subject_name_hash(certificate_of(authority.certificate()).get());
  std::filesystem::copy_file(authority.certificate(), hashed / fmt::format("{:08x}.0", hash));
  const std::string nowhere = folder.path() / "nowhere";

  const auto by_hash = new_context();
  const Status folder_only = trust_system(by_hash.get(), nowhere, nowhere + ":" + hashed.string());
  EXPECT_TRUE(folder_only) << folder_only.error().message;
  EXPECT_TRUE(trusts(by_hash.get(), server));
  EXPECT_EQ(ERR_peek_error(), 0U) << "a later error would be taken for this one";

  const auto by_file = new_context();
  EXPECT_TRUE(trust_system(by_file.get(), authority.certificate(), nowhere));
  EXPECT_TRUE(trusts(by_file.get(), server));

  const auto none = new_context();
  const Status refused = trust_system(none.get(), nowhere, folder.path());
  ASSERT_FALSE(refused) << "certificates under other names are not found";
  EXPECT_THAT(refused.error().message, HasSubstr(nowhere + ": found no certificate"));
  EXPECT_FALSE(trusts(none.get(), server));
}

TEST_F(TlsTest, RefusesACertificateForAnotherName) {
  use(authority.issue_server("elsewhere", {"DNS:elsewhere"}));
  ScriptedServer server(answer, server_tls.get());
  const auto object = ask(trusting(server));
  ASSERT_TRUE(object.is(Problem::kTransport));
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(TlsTest, AsksForTheNameItIsTold) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  config.tls.server_name = "kubernetes";
  EXPECT_TRUE(ask(config).ok());
  config.tls.server_name = "other";
  EXPECT_FALSE(ask(config).ok());
}

TEST_F(TlsTest, IsInsecureWhenTold) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = config_for(server);
  config.tls.verify = false;
  EXPECT_TRUE(ask(config).ok());
}

TEST_F(TlsTest, ShowsItsCertificate) {
  SSL_CTX_load_verify_locations(server_tls.get(), authority.certificate().c_str(), nullptr);
  SSL_CTX_set_verify(server_tls.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  EXPECT_FALSE(ask(config).ok());
  const auto paths = authority.issue_client("me", {});
  config.tls.certificate.file = paths.certificate;
  config.tls.key.file = paths.key;
  const auto object = ask(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
}

// A server that asks its clients for certificates and takes those of one name.
class CertificateRenewal : public TlsTest {
 protected:
  CertificateRenewal() {
    SSL_CTX_load_verify_locations(server_tls.get(), authority.certificate().c_str(), nullptr);
    SSL_CTX_set_verify(server_tls.get(), SSL_VERIFY_PEER, nullptr);
  }
  // Of the common name `name`.
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

  const fs::path certificate = folder.path() / "shown.crt", key = folder.path() / "shown.key";
  std::mutex mutex;
  std::string taken = "first";
  std::vector<std::string> shown;
  ScriptedServer server{[this](ScriptedConnection& connection, const ScriptedRequest&) {
                          const std::lock_guard lock(mutex);
                          shown.push_back(connection.client_name());
                          if (shown.back() == taken) return connection.answer(200, "{}");
                          connection.answer(401, status_text(401, "Unauthorized"));
                        },
                        server_tls.get()};
  void take(const std::string& name) {
    const std::lock_guard lock(mutex);
    taken = name;
  }
  void expect_renewal(const ClusterConfig& config, const std::vector<std::string>& expected) {
    issue("first");
    const auto client = Client::make(config, impatient()).or_throw();
    const auto ask = [&client] { return client->get(resource::pods(), "ns", "a", soon()); };
    ASSERT_TRUE(ask().ok());
    issue("second");
    take("second");
    const auto object = ask();
    EXPECT_TRUE(object.ok()) << object.error().sentence();
    EXPECT_TRUE(ask().ok());
    const std::lock_guard lock(mutex);
    EXPECT_EQ(shown, expected);
  }
};

TEST_F(CertificateRenewal, OfFilesTakesEffectWhenTheOldOneIsRefused) {
  ClusterConfig config = trusting(server);
  config.tls.certificate.file = certificate;
  config.tls.key.file = key;
  expect_renewal(config, {"first", "first", "second", "second"});
}

TEST_F(CertificateRenewal, ByAPluginTakesEffectWhenTheOldOneIsRefused) {
  ClusterConfig config = trusting(server);
  use_plugin(config, "");
  expect_renewal(config, {"first", "first", "second", "second"});
}

TEST_F(CertificateRenewal, ByAPluginTakesEffectWhenTheOldOneExpires) {
  ClusterConfig config = trusting(server);
  use_plugin(config, "2001-01-01T00:00:00Z");
  expect_renewal(config, {"first", "second", "second"});
}

TEST_F(TlsTest, SaysWhichFileCannotBeUsed) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  const auto paths = authority.issue_client("me", {});
  const auto others = authority.issue_client("you", {});
  config.tls.certificate.file = paths.certificate;
  config.tls.key.file = others.key;
  EXPECT_THAT(ask(config).error().message, HasSubstr(others.key.string()));
  config.tls.key.file = paths.certificate;
  EXPECT_THAT(ask(config).error().message, HasSubstr("no private key"));
  config.tls.authorities.file = paths.key;
  EXPECT_THAT(ask(config).error().message, HasSubstr("no certificate"));
  config.tls.authorities.file = "/not/there";
  EXPECT_THAT(ask(config).error().message, HasSubstr("/not/there"));
}

TEST_F(TlsTest, TakesAStreamThatIsCutUnderTlsForBroken) {
  ScriptedServer server(
      [](auto& connection, const auto&) {
        connection.begin_chunks();
        connection.chunk("{}");
        connection.hang_up();
      },
      server_tls.get());
  EXPECT_TRUE(ask(trusting(server)).is(Problem::kTransport));
}

TEST_F(TlsTest, KeepsItsConnection) {
  ScriptedServer server(answer, server_tls.get());
  const auto client = Client::make(trusting(server), impatient()).or_throw();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->get(resource::pods(), "ns", "a", soon()).ok());
  }
  for (const auto& request : server.requests()) EXPECT_EQ(request.connection, 0);
}

}  // namespace
}  // namespace tilewright::kube
