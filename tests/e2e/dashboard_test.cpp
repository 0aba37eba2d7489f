// The Grafana dashboard, held to Debian's Prometheus: it scrapes the operator's replicas and a
// job's workers through the API server, and every panel's queries must find something of that run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <regex>

#include "common/contract/ports.h"
#include "controller/kube/resource.h"
#include "tests/e2e/training_job.h"
#include "tests/support/https_client.h"
#include "tests/support/running_program.h"
#include "tests/support/served.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPrometheus = "/usr/bin/prometheus";
constexpr const char* kInOperatorsNamespace = "--namespace=tilewright-system";
constexpr const char* kJob = "mrpc";
// Between two questions to a program that cannot tell when it is ready.
constexpr std::chrono::milliseconds kTick{100};

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
      if (testing::must_run_all()) FAIL() << reason;
      GTEST_SKIP() << reason;
    }
    TrainingJobTest::SetUp();
  }

  // The API server without proof of who asks, for as long as the test runs: kubectl gives it.
  void open_api_server() {
    proxy_.emplace(kubectl_program(), std::vector<std::string>{"proxy", "--port=0"}, folder());
    ASSERT_TRUE(proxy_->say("\n"));
    std::smatch port;
    ASSERT_TRUE(std::regex_search(proxy_->output(), port, std::regex("127\\.0\\.0\\.1:[0-9]+")));
    api_server_ = port.str();
  }

  void start_prometheus() {
    std::ofstream config(folder() / "prometheus.yaml");
    config << "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs:\n";
    // Debian's knows nothing of Kubernetes: where a pod is and what labels its series get, a
    // PodMonitor would say.
    const auto scrape = [&](const std::string& space, const std::string& pod, int port) {
      config << fmt::format(
          "- job_name: {1}\n"
          "  honor_labels: true\n"
          "  metrics_path: /api/v1/namespaces/{0}/pods/{1}:{2}/proxy/metrics\n"
          "  static_configs: [{{targets: ['{3}'], labels: {{namespace: {0}, pod: {1}}}}}]\n",
          space, pod, port, api_server_);
    };
    const json replicas = json::parse(must({"get", "pods", "-o=json", kInOperatorsNamespace,
                                            "--selector=app.kubernetes.io/component=controller"}));
    for (const json& replica : replicas["items"]) {
      scrape(replica["metadata"]["namespace"], replica["metadata"]["name"], kControllerMetricsPort);
    }
    for (const char* worker : {"mrpc-worker-0", "mrpc-worker-1"}) {
      scrape(name_space(), worker, kWorkerMetricsPort);
    }
    config.close();
    const std::string address = testing::local(testing::free_port());
    prometheus_.emplace(
        kPrometheus,
        std::vector<std::string>{"--config.file=prometheus.yaml", "--storage.tsdb.path=series",
                                 "--web.listen-address=" + address, "--log.level=warn"},
        folder());
    http_.emplace("http://" + address, "", testing::Credentials{});
    ASSERT_TRUE(await_true("prometheus",
                           [this] { return prometheus_->ended() || http_->get("/-/ready").ok(); }));
    ASSERT_FALSE(prometheus_->ended()) << (prometheus_->wait(), prometheus_->output());
  }

  // What Prometheus holds of this test's time; nothing where there is none.
  json series(const std::string& query) {
    const auto now = std::chrono::system_clock::now();
    const auto seconds = [](auto time) {
      return std::to_string(std::chrono::duration<double>(time.time_since_epoch()).count());
    };
    const std::string form = "query=" + kube::percent_encoded(query) + "&start=" + seconds(start_) +
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
  // NaN where there is none.
  double last(const std::string& query) {
    const std::vector<double> found = values(query);
    return found.empty() ? std::nan("") : found.back();
  }

  bool await_true(const std::string& what, const std::function<bool()>& look) {
    const auto deadline = std::chrono::steady_clock::now() + testing::kPatience;
    while (!look()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << what << " is not ready";
        return false;
      }
      poll(nullptr, 0, static_cast<int>(kTick.count()));
    }
    return true;
  }

  // As Grafana would send them.
  std::vector<Query> queries() const {
    std::vector<Query> found;
    const json dashboard = json::parse(
        testing::read_text(testing::source_dir() / "charts/tilewright/dashboards/tilewright.json"));
    for (const json& panel : dashboard["panels"]) {
      if (panel["type"] == "row") continue;
      for (const json& target : panel["targets"]) {
        std::string text = target["expr"];
        for (const auto& [variable, value] :
             {std::pair<const char*, std::string>{"\\$namespace", name_space()},
              {"\\$trainjob", kJob},
              {"\\$__rate_interval", "5s"}}) {
          text = std::regex_replace(text, std::regex(variable), value);
        }
        EXPECT_EQ(text.find('$'), std::string::npos) << text << ": an unknown variable";
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
  ASSERT_NO_FATAL_FAILURE(open_api_server());
  ASSERT_NO_FATAL_FAILURE(start_prometheus());
  ASSERT_TRUE(await_true("the scrape of the operator",
                         [this] { return last("sum(tilewright_controller_leading)") == 1; }));
  json manifest = testing::training_job(testing::Model::kMiniLm);
  manifest["spec"]["worker"]["replicas"] = 2;
  manifest["spec"]["elasticPolicy"] = {{"maxRestarts", 3}};
  manifest["spec"]["trainer"].update({{"max_steps", 40},
                                      {"save_steps", 8},
                                      {"logging_steps", 2},
                                      {"do_eval", true},
                                      {"max_eval_samples", 64}});
  create(manifest);
  await_checkpoint();
  must({"delete", "pod", "mrpc-worker-1", "--wait=false"});
  await_success();

  const std::vector<Query> asked = queries();
  EXPECT_GT(asked.size(), 20U);
  for (const Query& query : asked) {
    ASSERT_TRUE(
        await_true(query.panel + ": " + query.text, [&] { return !values(query.text).empty(); }));
    // What the legend speaks of is there.
    const json found = series(query.text).front()["metric"];
    std::smatch label;
    for (std::string rest = query.legend;
         std::regex_search(rest, label, std::regex(R"(\{\{(\w+)\}\})")); rest = label.suffix()) {
      EXPECT_TRUE(found.contains(label[1].str())) << query.panel << ": " << query.legend;
    }
  }

  const std::string here = "{namespace='" + name_space() + "'}";
  const auto most = [&](const std::string& metric) {
    return last("max(max_over_time(" + metric + here + "[10m]))");
  };
  // The last steps may fall between two scrapes.
  EXPECT_GT(most("tilewright_step"), 8);
  EXPECT_LE(most("tilewright_step"), 40);
  EXPECT_EQ(most("tilewright_total_steps"), 40);
  EXPECT_EQ(most("tilewright_world_size"), 2);
  EXPECT_GE(last("max(max_over_time(tilewright_controller_pods[10m]))"), 2);
  const json status = job()["status"];
  EXPECT_EQ(last("tilewright_job_evaluation{namespace='" + name_space() + "',metric='accuracy'}"),
            status["progress"]["metrics"]["eval_accuracy"].get<double>());
  EXPECT_EQ(last("tilewright_job_restarts_total{namespace='" + name_space() +
                 "',cause='Infrastructure'}"),
            1);
  EXPECT_EQ(status["restarts"]["infrastructure"], 1);
  const double share = most("tilewright_gflops") / most("tilewright_ceiling_gflops");
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1.5) << "the ceiling was measured beside whatever else ran";
  // What the variables offer.
  for (const auto& [label, value] :
       {std::pair<const char*, std::string>{"namespace", name_space()}, {"trainjob", kJob}}) {
    const auto offered =
        prometheus().get(std::string("/api/v1/label/") + label + "/values?match[]=tilewright_step");
    EXPECT_EQ(offered.json()["data"], json::array({value})) << offered.body;
  }
}

}  // namespace
}  // namespace tilewright
