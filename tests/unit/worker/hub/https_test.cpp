// A hub with TLS.
#include <openssl/ssl.h>

#include "tests/support/certificates.h"
#include "tests/unit/worker/hub/hub_fixture.h"

namespace tilewright::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Https : public HubTest {
 protected:
  Https() {
    const testing::CertificatePaths own = authority_.issue_server("hub", {"IP:127.0.0.1"});
    EXPECT_EQ(SSL_CTX_use_certificate_file(tls_.get(), own.certificate.c_str(), SSL_FILETYPE_PEM),
              1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(tls_.get(), own.key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  // Serves a config.json of two bytes, or redirects to `location`.
  std::unique_ptr<kube::ScriptedServer> serve(const std::string& location = "") {
    auto hub = std::make_unique<kube::ScriptedServer>(
        [location](kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
          if (!location.empty()) {
            connection.head(302, "Location: " + location + "\r\nContent-Length: 0\r\n");
          } else if (request.method == "HEAD") {
            connection.head(200,
                            "X-Repo-Commit: 0123456789012345678901234567890123456789\r\n"
                            "ETag: \"9e26dfeeb6e641a33dae4961196235bdb965b21b\"\r\n"
                            "Content-Length: 2\r\n");
          } else {
            connection.answer(200, "{}");
          }
        },
        tls_.get());
    options_.endpoint = hub->url();
    return hub;
  }
  std::filesystem::path resolve_config() {
    return resolve_model(
        {.name_or_path = "org/name", .parts = {.tokenizer = false, .weights = false}}, options_);
  }

  testing::CertificateAuthority authority_{folder_.path()};
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls_{SSL_CTX_new(TLS_server_method()),
                                                         SSL_CTX_free};
};

TEST_F(Https, IsVerifiedWithTheGivenAuthorities) {
  const auto hub = serve();
  options_.ca_file = authority_.certificate();
  EXPECT_EQ(testing::read_text(resolve_config() / "config.json"), "{}");
}

TEST_F(Https, WithAnUnknownAuthorityIsAnError) {
  const auto hub = serve();
  const Error error = failure_of([&] { resolve_config(); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message, AllOf(HasSubstr("the certificate of " + hub->url()),
                                   HasSubstr("SSL_CERT_FILE names other")));
  EXPECT_TRUE(hub->requests().empty());
}

TEST_F(Https, WithoutTheFileOfAuthoritiesIsAnError) {
  const auto hub = serve();
  options_.ca_file = folder_.path() / "none.pem";
  EXPECT_EQ(failure_of([&] { resolve_config(); }).code, ExitCode::kModel);
}

TEST_F(Https, DoesNotRedirectToHttp) {
  const auto hub = serve(server_.endpoint() + "/config.json");
  options_.ca_file = authority_.certificate();
  const Error error = failure_of([&] { resolve_config(); });
  EXPECT_EQ(error.code, ExitCode::kModel);
  EXPECT_THAT(error.message,
              HasSubstr("with a redirect to " + server_.endpoint() + ", which is not encrypted"));
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace tilewright::hub
