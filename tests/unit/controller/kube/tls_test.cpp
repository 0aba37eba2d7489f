// Whom the client trusts, and what it shows of itself.
#include "controller/kube/tls.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "tests/support/certificates.h"
#include "tests/support/paths.h"
#include "tests/unit/controller/kube/client_fixtures.h"

namespace tilewright::kube {
namespace {

using ::testing::HasSubstr;

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

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
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> server_tls{SSL_CTX_new(TLS_server_method()),
                                                               SSL_CTX_free};
  static void answer(ScriptedConnection& connection, const ScriptedRequest&) {
    connection.answer(200, "{}");
  }
};

TEST_F(TlsTest, TrustsTheClustersAuthority) {
  ScriptedServer server(answer, server_tls.get());
  ClusterConfig config = trusting(server);
  auto object = ask(config);
  EXPECT_TRUE(object.ok()) << object.error().sentence();
  config.tls.authorities = {"", content_of(authority.certificate())};
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
