// Tests of the pages for probes and Prometheus, requested with libcurl.
#include "controller/operator/http_pages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <regex>
#include <sstream>

#include "controller/operator/metrics.h"
#include "tests/support/https_client.h"

namespace tilewright::controller {
namespace {

using tilewright::testing::HttpResponse;
using tilewright::testing::HttpsClient;

HttpResponse get(const net::HttpServer& server, const std::string& path) {
  return HttpsClient(fmt::format("http://127.0.0.1:{}", server.port()), "", {}).get(path);
}

std::unique_ptr<net::HttpServer> serve(net::HttpServer::Handlers pages) {
  net::HttpLimits limits;  // a busy machine cannot expire these
  limits.request_timeout = limits.response_timeout = std::chrono::hours(1);
  return net::HttpServer::start({"127.0.0.1", 0}, std::move(pages), limits).or_throw();
}

TEST(HealthPages, ReturnStateAndReason) {
  std::optional<std::string> unhealthy, unready = "caches are empty";
  const auto server = serve(health_pages([&] { return unhealthy; }, [&] { return unready; }));
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  EXPECT_EQ(get(*server, "/healthz").body, "ok\n");
  EXPECT_EQ(get(*server, "/readyz").status, 503);
  EXPECT_EQ(get(*server, "/readyz").body, "caches are empty\n");
  unhealthy = "a reconcile hangs";
  unready.reset();
  EXPECT_EQ(get(*server, "/healthz").status, 503);
  EXPECT_EQ(get(*server, "/healthz").body, "a reconcile hangs\n");
  EXPECT_EQ(get(*server, "/readyz").status, 200);
  EXPECT_EQ(get(*server, "/metrics").status, 404);
}

// https://prometheus.io/docs/instrumenting/exposition_formats: every line is a comment or a sample.
TEST(MetricsPages, FollowTheExpositionFormat) {
  Metrics metrics;
  const auto server = serve(metrics_pages(metrics.collectable([] { return MetricsSnapshot{}; })));
  const HttpResponse answer = get(*server, "/metrics");
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
  EXPECT_EQ(get(*server, "/healthz").status, 404);
}

}  // namespace
}  // namespace tilewright::controller
