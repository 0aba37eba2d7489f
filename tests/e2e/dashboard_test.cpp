// Tests the Grafana dashboard against Prometheus, which scrapes the operator's replicas and a job's
// workers through the API server. Every query of every panel must return data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <regex>

#include "common/base/clock.h"
#include "common/contract/ports.h"
#include "controller/client/resource.h"
#include "tests/e2e/training_job.h"
#include "tests/support/https_client.h"
#include "tests/support/local_ports.h"
#include "tests/support/running_program.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPrometheus = "/usr/bin/prometheus";
constexpr const char* kInOperatorsNamespace = "--namespace=tilewright-system";
constexpr const char* kJob = "mrpc";
// Poll interval for programs without a readiness notification.
constexpr std::chrono::milliseconds kPollInterval{100};

struct Query {
  std::string panel;
  std::string text;
  std::string legend;
};

class Dashboard : public testing::TrainingJobTest {
 protected:
  Dashboard() : TrainingJobTest(testing::Model::kMiniLm) {}

  void SetUp() override {
    if (!fs::exists(kPrometheus)) {
      const std::string reason =
          std::string(kPrometheus) + " is missing: `.ci/install-packages .ci/packages-metrics.txt`";
      if (testing::prerequisites_required()) FAIL() << reason;
      GTEST_SKIP() << reason;
    }
    TrainingJobTest::SetUp();
  }

  // Runs `kubectl proxy` during the test: the API server without authentication.
  void start_kubectl_proxy() {
    proxy_.emplace(kubectl_program(), std::vector<std::string>{"proxy", "--port=0"}, folder());
    ASSERT_TRUE(proxy_->wait_for_output("\n"));
    std::smatch port;
    ASSERT_TRUE(std::regex_search(proxy_->output(), port, std::regex("127\\.0\\.0\\.1:[0-9]+")));
    api_server_ = port.str();
  }

  void start_prometheus() {
    std::ofstream config(folder() / "prometheus.yaml");
    config << "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n";
    // Debian's Prometheus has no Kubernetes service discovery, so the targets and labels that a
    // PodMonitor would give are written here.
    const auto scrape = [&](const std::string& space, const std::string& pod, int port) {
      config << fmt::format(
          "- job_name: {1}\n"
          "  honor_labels: true\n"
          "  metrics_path: /api/v1/namespaces/{0}/pods/{1}:{2}/proxy/metrics\n"
          "  static_configs: [{{targets: ['{3}'], labels: {{namespace: {0}, pod: {1}}}}}]\n",
          space, pod, port, api_server_);
    };
    const json replicas =
        json::parse(kubectl_ok({"get", "pods", "-o=json", kInOperatorsNamespace,
                                "--selector=app.kubernetes.io/component=controller"}));
    for (const json& replica : replicas["items"]) {
      scrape(replica["metadata"]["namespace"], replica["metadata"]["name"], kControllerMetricsPort);
    }
    for (const char* worker : {"mrpc-worker-0", "mrpc-worker-1"}) {
      scrape(namespace_name(), worker, kWorkerMetricsPort);
    }
    config.close();
    const std::string address = testing::loopback_address(testing::free_port());
    prometheus_.emplace(
        kPrometheus,
        std::vector<std::string>{"--config.file=prometheus.yaml", "--storage.tsdb.path=series",
                                 "--web.listen-address=" + address, "--log.level=warn"},
        folder());
    http_.emplace("http://" + address, "", testing::Credentials{});
    ASSERT_TRUE(wait_until(
        "prometheus", [this] { return prometheus_->has_exited() || http_->get("/-/ready").ok(); }));
    ASSERT_FALSE(prometheus_->has_exited()) << (prometheus_->wait(), prometheus_->output());
  }

  // The series in this test's time range; empty if there are none.
  json series(const std::string& query) {
    const auto now = std::chrono::system_clock::now();
    const auto seconds = [](auto time) {
      return std::to_string(in_seconds(time.time_since_epoch()));
    };
    const std::string form = "query=" + kube::percent_encode(query) + "&start=" + seconds(start_) +
                             "&end=" + seconds(now) + "&step=0.25";
    const auto answer =
        http_->send("POST", "/api/v1/query_range", form, "application/x-www-form-urlencoded");
    const json body = answer.json();
    if (!answer.ok() || body.value("status", "") != "success") {
      ADD_FAILURE() << query << ": " << answer.body;
      return json::array();
    }
    return body["data"]["result"];
  }

  // The finite values of the query's series.
  std::vector<double> values(const std::string& query) {
    std::vector<double> found;
    for (const json& one : series(query)) {
      for (const json& point : one["values"]) {
        const double value = std::stod(point[1].get<std::string>());
        if (std::isfinite(value)) found.push_back(value);
      }
    }
    return found;
  }
  // NaN if there are no values.
  double last(const std::string& query) {
    const std::vector<double> found = values(query);
    return found.empty() ? std::nan("") : found.back();
  }

  bool wait_until(const std::string& what, const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + testing::kTimeout;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << what << " is not ready";
        return false;
      }
      poll(nullptr, 0, static_cast<int>(kPollInterval.count()));
    }
    return true;
  }

  // The dashboard's queries with Grafana's variables substituted.
  std::vector<Query> queries() const {
    std::vector<Query> found;
    const json dashboard = json::parse(
        testing::read_text(testing::source_dir() / "charts/tilewright/dashboards/tilewright.json"));
    for (const json& panel : dashboard["panels"]) {
      if (panel["type"] == "row") continue;
      for (const json& target : panel["targets"]) {
        std::string text = target["expr"];
        for (const auto& [variable, value] :
             {std::pair<const char*, std::string>{"\\$namespace", namespace_name()},
              {"\\$trainjob", kJob},
              {"\\$__rate_interval", "5s"}}) {
          text = std::regex_replace(text, std::regex(variable), value);
        }
        // $1 is a group of label_replace().
        EXPECT_FALSE(std::regex_search(text, std::regex("\\$[^1]")))
            << text << ": unknown variable";
        found.push_back({panel["title"], text, target["legendFormat"]});
      }
    }
    return found;
  }

 private:
  const std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
  std::string api_server_;  // HOST:PORT
  std::optional<testing::RunningProgram> proxy_, prometheus_;
  std::optional<testing::HttpsClient> http_;

 protected:
  testing::HttpsClient& prometheus() { return *http_; }
};

TEST_F(Dashboard, FindsDataForEveryPanelOfARealRun) {
  ASSERT_NO_FATAL_FAILURE(start_kubectl_proxy());
  ASSERT_NO_FATAL_FAILURE(start_prometheus());
  ASSERT_TRUE(wait_until("the scrape of the operator",
                         [this] { return last("sum(tilewright_controller_leading)") == 1; }));
  json manifest = testing::training_job(testing::Model::kMiniLm);
  manifest["spec"]["worker"]["replicas"] = 2;
  manifest["spec"]["elasticPolicy"] = {{"maxRestarts", 3}};
  // Long enough for scrapes of both membership epochs.
  manifest["spec"]["worker"]["env"] = json::array({testing::delayed_epochs({700, 300, 300})});
  manifest["spec"]["trainer"].update({{"per_device_train_batch_size", 4},
                                      {"max_steps", 40},
                                      {"save_steps", 8},
                                      {"logging_steps", 2},
                                      {"do_train", true},
                                      {"do_eval", true},
                                      {"max_eval_samples", 64}});
  create(manifest);
  wait_for_checkpoint();
  kubectl_ok({"delete", "pod", "mrpc-worker-1", "--wait=false"});
  wait_for_success();

  const std::vector<Query> asked = queries();
  EXPECT_GT(asked.size(), 20U);
  for (const Query& query : asked) {
    ASSERT_TRUE(
        wait_until(query.panel + ": " + query.text, [&] { return !values(query.text).empty(); }));
    // Every label in the legend exists.
    const json found = series(query.text).front()["metric"];
    std::smatch label;
    for (std::string rest = query.legend;
         std::regex_search(rest, label, std::regex(R"(\{\{(\w+)\}\})")); rest = label.suffix()) {
      EXPECT_TRUE(found.contains(label[1].str())) << query.panel << ": " << query.legend;
    }
  }

  const std::string here = "{namespace='" + namespace_name() + "'}";
  const auto max_of = [&](const std::string& metric) {
    return last("max(max_over_time(" + metric + here + "[10m]))");
  };
  // The last steps may run between two scrapes.
  EXPECT_GT(max_of("tilewright_step"), 8);
  EXPECT_LE(max_of("tilewright_step"), 40);
  EXPECT_EQ(max_of("tilewright_total_steps"), 40);
  EXPECT_EQ(max_of("tilewright_world_size"), 2);
  EXPECT_GE(last("max(max_over_time(tilewright_controller_pods[10m]))"), 2);
  const json status = job()["status"];
  EXPECT_EQ(
      last("tilewright_job_evaluation{namespace='" + namespace_name() + "',metric='accuracy'}"),
      status["progress"]["metrics"]["eval_accuracy"].get<double>());
  EXPECT_EQ(last("tilewright_job_restarts_total{namespace='" + namespace_name() +
                 "',cause='Infrastructure'}"),
            1);
  EXPECT_EQ(status["restarts"]["infrastructure"], 1);
  const double share =
      max_of("tilewright_flops_per_second") / max_of("tilewright_peak_flops_per_second");
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1.5) << "the peak was measured on a busy machine";
  // The values of the dashboard's variables.
  for (const auto& [label, value] :
       {std::pair<const char*, std::string>{"namespace", namespace_name()}, {"trainjob", kJob}}) {
    const auto offered =
        prometheus().get(std::string("/api/v1/label/") + label + "/values?match[]=tilewright_step");
    EXPECT_EQ(offered.json()["data"], json::array({value})) << offered.body;
  }
}

}  // namespace
}  // namespace tilewright
