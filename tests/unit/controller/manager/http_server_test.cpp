// What probes and Prometheus get, asked for by libcurl.
#include "controller/manager/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <prometheus/metric_family.h>

#include <atomic>
#include <regex>
#include <sstream>
#include <thread>

#include "controller/manager/metrics.h"
#include "tests/support/https_client.h"
#include "tests/unit/controller/kube/scripted_server.h"

namespace tilewright::manager {
namespace {

using ::testing::HasSubstr;
using tilewright::testing::HttpResponse;
using tilewright::testing::HttpsClient;

HttpResponse get(std::uint16_t port, const std::string& path) {
  return HttpsClient(fmt::format("http://127.0.0.1:{}", port), "", {}).get(path);
}

// One server for all tests: to stop one takes civetweb two seconds.
class HttpServerTest : public ::testing::Test {
 protected:
  static HttpServer::Answers answers() {
    return {metrics().collectable([] { return Figures{}; }),
            []() -> std::optional<std::string> {
              return healthy ? std::nullopt : std::optional<std::string>("a look hangs");
            },
            []() -> std::optional<std::string> {
              return ready ? std::nullopt : std::optional<std::string>("caches are empty");
            }};
  }
  static Metrics& metrics() {
    static Metrics metrics;
    return metrics;
  }
  static void SetUpTestSuite() {
    server = HttpServer::start({"127.0.0.1", 0}, {"127.0.0.1", 0}, answers()).or_throw();
  }
  static void TearDownTestSuite() { server.reset(); }
  void SetUp() override { healthy = ready = true; }

  static inline std::atomic<bool> healthy{true}, ready{true};
  static inline std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, ProbesSayWhatIsAndWhyNot) {
  const std::uint16_t port = server->health_port();
  EXPECT_NE(port, server->metrics_port());
  ready = false;
  EXPECT_EQ(get(port, "/healthz").status, 200);
  EXPECT_EQ(get(port, "/readyz").status, 503);
  EXPECT_EQ(get(port, "/readyz").body, "caches are empty\n");
  healthy = false;
  ready = true;
  EXPECT_EQ(get(port, "/healthz").status, 503);
  EXPECT_EQ(get(port, "/healthz").body, "a look hangs\n");
  EXPECT_EQ(get(port, "/readyz").status, 200);
}

TEST_F(HttpServerTest, KnowsNoOtherPath) {
  for (const char* path : {"/", "/metric", "/metrics/x", "/healthz/", "/x/healthz"}) {
    EXPECT_EQ(get(server->health_port(), path).status, 404) << path;
  }
}

// https://prometheus.io/docs/instrumenting/exposition_formats: every line is a comment or a sample.
TEST_F(HttpServerTest, MetricsAreTextThatPrometheusReads) {
  const HttpResponse answer = get(server->metrics_port(), "/metrics");
  ASSERT_EQ(answer.status, 200);
  const std::regex comment("# (HELP|TYPE) [a-zA-Z_:][a-zA-Z0-9_:]* .+");
  const std::regex sample(
      R"([a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_]\w*="[^"]*"(,[a-zA-Z_]\w*="[^"]*")*\})? )"
      R"((-?[0-9.eE+-]+|[+-]Inf|NaN))");
  std::istringstream lines(answer.body);
  std::string line;
  std::size_t samples = 0;
  while (std::getline(lines, line)) {
    const bool is_sample = std::regex_match(line, sample);
    EXPECT_TRUE(is_sample || std::regex_match(line, comment)) << line;
    samples += is_sample ? 1 : 0;
  }
  EXPECT_GT(samples, 10U);
}

TEST_F(HttpServerTest, ServesAllOnOnePortIfAsked) {
  // Twice the same port is what a user may write; here it is one that was free a moment ago, and
  // that somebody else may have taken since.
  std::unique_ptr<HttpServer> both;
  for (int tries = 0; tries < 20 && !both; ++tries) {
    const auto url = kube::ScriptedServer([](auto&, const auto&) {}).url();
    const auto address = net::parse_address(url.substr(url.find("//") + 2)).or_throw();
    if (auto started = HttpServer::start(address, address, answers())) {
      both = std::move(started).value();
      EXPECT_EQ(both->metrics_port(), address.port);
    }
  }
  ASSERT_TRUE(both);
  const std::uint16_t port = both->metrics_port();
  EXPECT_EQ(both->health_port(), port);
  EXPECT_EQ(get(port, "/healthz").status, 200);
  EXPECT_EQ(get(port, "/metrics").status, 200);
}

TEST_F(HttpServerTest, SaysWhenAPortIsTaken) {
  const auto second =
      HttpServer::start({"127.0.0.1", server->metrics_port()}, {"127.0.0.1", 0}, answers());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(server->metrics_port())));
}

TEST_F(HttpServerTest, AnswersSeveralAtOnce) {
  std::vector<std::thread> askers;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 5; ++j) good += get(server->health_port(), "/healthz").status == 200;
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(good, 40);
}

}  // namespace
}  // namespace tilewright::manager
