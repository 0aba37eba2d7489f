// The Grafana dashboard and the alerts, held to Debian's Prometheus: it scrapes a real operator and
// a real training, and every panel's queries must find something there.
#include <poll.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <regex>
#include <set>

#include "controller/kube/resource.h"
#include "tests/integration/chart_fixture.h"
#include "tests/integration/running_program.h"
#include "tests/integration/served.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::CommandOutcome;
using testing::RunningProgram;

constexpr const char* kPrometheus = "/usr/bin/prometheus";
constexpr const char* kPromtool = "/usr/bin/promtool";
// Where the labels of a pod would come from Kubernetes, the scrape configuration says them.
constexpr const char* kJobsNamespace = "training";
constexpr const char* kJob = "mrpc";
// Between two questions to a program that cannot tell when it is ready.
constexpr std::chrono::milliseconds kTick{50};

// Not there: a failure where all must run, elsewhere a reason to skip.
std::string missing() {
  for (const char* program : {kPrometheus, kPromtool}) {
    if (!fs::exists(program)) {
      return std::string(program) + " is missing: `.ci/install-packages .ci/packages-metrics.txt`";
    }
  }
  return "";
}

CommandOutcome promtool(const std::vector<std::string>& arguments) {
  ChildCommand command;
  command.program = kPromtool;
  command.arguments = arguments;
  command.environment = environment_with({});
  return testing::run_command(command);
}

class Alerts : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = missing();
    if (reason.empty()) return;
    if (testing::must_run_all()) FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

TEST_F(Alerts, AreRulesThatPrometheusTakes) {
  const CommandOutcome outcome = promtool(
      {"check", "rules", (testing::chart_folder() / "alerts/tilewright.rules.yaml").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(Alerts, SpeakWhenTheyShouldAndAreSilentBesideThat) {
  const CommandOutcome outcome =
      promtool({"test", "rules", (testing::source_dir() / "charts/tests/alerts.yaml").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// Every alert has a case in which it speaks.
TEST_F(Alerts, AreAllTested) {
  const std::string tests = testing::read_text(testing::source_dir() / "charts/tests/alerts.yaml");
  const json rules =
      api::read_yaml(testing::read_text(testing::chart_folder() / "alerts/tilewright.rules.yaml"))
          .tree;
  for (const json& group : rules["groups"]) {
    for (const json& rule : group["rules"]) {
      const std::string name = rule["alert"];
      EXPECT_TRUE(std::regex_search(
          tests, std::regex("alertname: " + name + "\\n\\s+exp_alerts:[^\\n]*\\n\\s+- exp_labels")))
          << name;
    }
  }
}

struct Query {
  std::string panel;
  std::string text;
  std::string legend;
};

class Dashboard : public testing::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    if (const std::string reason = missing(); !reason.empty()) {
      if (testing::must_run_all()) FAIL() << reason;
      GTEST_SKIP() << reason;
    }
    ASSERT_EQ(testing::missing_model(), "");
  }

  const fs::path& folder() const { return temporary_.path(); }

  void start_prometheus() {
    std::ofstream config(folder() / "prometheus.yaml");
    config << "global: {scrape_interval: 100ms, scrape_timeout: 100ms}\nscrape_configs:\n";
    const auto scrape = [&config](const char* name, int port, const char* space, const char* pod) {
      config << "- job_name: " << name << "\n  static_configs:\n  - targets: ['"
             << testing::local(port) << "']\n    labels: {namespace: " << space << ", pod: " << pod
             << "}\n  honor_labels: true\n";
    };
    scrape("controller", controller_port_, "tilewright-system", "controller-0");
    scrape("worker", worker_port_, kJobsNamespace, "mrpc-worker-0");
    config.close();
    const int port = testing::free_port();
    prometheus_.emplace(kPrometheus,
                        std::vector<std::string>{
                            "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
                            "--web.listen-address=" + testing::local(port), "--log.level=warn"},
                        folder());
    http_.emplace("http://" + testing::local(port), "", testing::Credentials{});
    ASSERT_TRUE(await("prometheus", [this] { return http_->get("/-/ready").ok(); }));
  }

  void start_controller() {
    const fs::path crd = testing::source_dir() / "crds/trainjobs.tilewright.dev.yaml";
    kubectl({"apply", "--server-side", "-f", crd.string()});
    kubectl(
        {"wait", "crd/trainjobs.tilewright.dev", "--for=condition=Established", "--timeout=60s"});
    const int health_port = testing::free_port();
    controller_.emplace(testing::program("tilewright"),
                        std::vector<std::string>{
                            "controller", "--namespace=default",
                            "--kubeconfig=" + control_plane().kubeconfig().string(),
                            "--metrics_listen=" + testing::local(controller_port_),
                            "--health_listen=" + testing::local(health_port),
                            "--rendezvous_listen=127.0.0.1:0", "--rendezvous_address=127.0.0.1:0"},
                        folder());
    ASSERT_TRUE(controller_->say("leading"));
    testing::HttpsClient health("http://" + testing::local(health_port), "", {});
    EXPECT_TRUE(health.get("/readyz").ok());
    EXPECT_TRUE(health.get("/healthz").ok());
  }

  // A job for the operator to look at. There is no node: its pods stay where they are, and its
  // result is the test's to write.
  void make_job() {
    const std::string in = std::string("--namespace=") + kJobsNamespace;
    const fs::path manifest = testing::source_dir() / "examples/cluster/trainjob.yaml";
    kubectl({"create", "namespace", kJobsNamespace});
    kubectl({"create", in, "-f", manifest.string()});
    kubectl({"wait", in, "pod/mrpc-worker-1", "--for=create", "--timeout=60s"});
    kubectl({"patch", in, "trainjob/mrpc", "--subresource=status", "--type=merge",
             R"(--patch={"status": {"progress": {"step": 20, "totalSteps": 20,
                "metrics": {"eval_accuracy": 0.75}}}})"});
  }

  void train(int steps) {
    RunningProgram worker(
        "/usr/bin/env",
        {"TILEWRIGHT_METRICS_ADDRESS=" + testing::local(worker_port_),
         std::string("TILEWRIGHT_JOB_NAME=") + kJob, testing::program("tilewright-worker").string(),
         "train", "--task_name=mrpc", "--model_name_or_path=" + testing::model_dir().string(),
         "--data_dir=" + (testing::source_dir() / "examples/data/paraphrase").string(),
         "--output_dir=" + (folder() / "output").string(), "--overwrite_output_dir=true",
         "--per_device_train_batch_size=8", "--max_steps=" + std::to_string(steps),
         "--max_eval_samples=32", "--save_steps=4"},
        folder());
    EXPECT_EQ(worker.wait(), 0) << worker.output();
  }

  // What Prometheus holds of this test's time; nothing where there is none.
  json series(const std::string& query) {
    const auto now = std::chrono::system_clock::now();
    const auto seconds = [](auto time) {
      return std::to_string(std::chrono::duration<double>(time.time_since_epoch()).count());
    };
    const std::string form = "query=" + kube::percent_encoded(query) + "&start=" + seconds(start_) +
                             "&end=" + seconds(now) + "&step=0.2";
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

  bool await(const char* what, const std::function<bool()>& look) {
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

  void kubectl(const std::vector<std::string>& arguments) {
    const CommandOutcome outcome = control_plane().kubectl(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }

  static json dashboard() {
    return json::parse(testing::read_text(testing::chart_folder() / "dashboards/tilewright.json"));
  }

  // As Grafana would send them.
  static std::vector<Query> queries() {
    std::vector<Query> found;
    const json all = dashboard();
    for (const json& panel : all["panels"]) {
      if (panel["type"] == "row") continue;
      for (const json& target : panel["targets"]) {
        std::string text = target["expr"];
        for (const auto& [variable, value] :
             {std::pair{"\\$namespace", kJobsNamespace}, std::pair{"\\$trainjob", kJob},
              std::pair{"\\$__rate_interval", "5s"}}) {
          text = std::regex_replace(text, std::regex(variable), value);
        }
        EXPECT_EQ(text.find('$'), std::string::npos) << text << ": an unknown variable";
        found.push_back({panel["title"], text, target["legendFormat"]});
      }
    }
    return found;
  }

 private:
  testing::TemporaryDirectory temporary_;

 protected:
  const std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
  const int controller_port_ = testing::free_port();
  const int worker_port_ = testing::free_port();
  std::optional<testing::HttpsClient> http_;
  std::optional<RunningProgram> prometheus_;
  std::optional<RunningProgram> controller_;
};

TEST_F(Dashboard, FindsDataForEveryPanelOfARealRun) {
  ASSERT_NO_FATAL_FAILURE(start_controller());
  ASSERT_NO_FATAL_FAILURE(start_prometheus());
  ASSERT_TRUE(await("the scrape of the operator",
                    [this] { return !values("tilewright_controller_leading == 1").empty(); }));
  ASSERT_NO_FATAL_FAILURE(make_job());
  train(20);
  // The evaluation's result is served while the model is written, which takes a moment only: if
  // Prometheus missed it, another run gives it another chance.
  for (int tries = 0; tries < 20 && values("tilewright_evaluation").empty(); ++tries) train(1);

  const std::vector<Query> asked = queries();
  EXPECT_GT(asked.size(), 20U);
  for (const Query& query : asked) {
    ASSERT_TRUE(await((query.panel + ": " + query.text).c_str(),
                      [&] { return !values(query.text).empty(); }));
    // What the legend speaks of is there.
    const json found = series(query.text).front()["metric"];
    std::smatch label;
    for (std::string rest = query.legend;
         std::regex_search(rest, label, std::regex(R"(\{\{(\w+)\}\})")); rest = label.suffix()) {
      EXPECT_TRUE(found.contains(label[1].str())) << query.panel << ": " << query.legend;
    }
  }

  const auto last = [this](const std::string& query) { return values(query).back(); };
  EXPECT_EQ(last("max(max_over_time(tilewright_step[10m]))"), 20);
  EXPECT_EQ(last("max(tilewright_controller_leading)"), 1);
  EXPECT_EQ(last("max(tilewright_controller_pods)"), 2);
  EXPECT_EQ(last("tilewright_job_evaluation{namespace='training',metric='accuracy'}"), 0.75);
  EXPECT_EQ(last("sum(tilewright_job_restarts_total{namespace='training'})"), 0);
  const double share = last(
      "max(max_over_time(tilewright_gflops[10m])) / "
      "max(max_over_time(tilewright_ceiling_gflops[10m]))");
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1.5) << "the ceiling was measured beside whatever else ran";
  // What the variables offer.
  for (const auto& [label, value] :
       {std::pair{"namespace", kJobsNamespace}, std::pair{"trainjob", kJob}}) {
    const auto offered =
        http_->get(std::string("/api/v1/label/") + label + "/values?match[]=tilewright_step");
    EXPECT_EQ(offered.json()["data"], json::array({value})) << offered.body;
  }
}

TEST(DashboardFile, HasPanelsBesideEachOtherAndEachWithAName) {
  const json dashboard =
      json::parse(testing::read_text(testing::chart_folder() / "dashboards/tilewright.json"));
  std::set<int> ids;
  std::set<std::pair<int, int>> taken;
  for (const json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    EXPECT_FALSE(panel["title"].get<std::string>().empty());
    const json& place = panel["gridPos"];
    for (int x = place["x"]; x < place["x"].get<int>() + place["w"].get<int>(); ++x) {
      EXPECT_LT(x, 24) << panel["title"];
      for (int y = place["y"]; y < place["y"].get<int>() + place["h"].get<int>(); ++y) {
        EXPECT_TRUE(taken.insert({x, y}).second) << panel["title"] << " lies over another panel";
      }
    }
    if (panel["type"] == "row") continue;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}");
    EXPECT_FALSE(panel["description"].get<std::string>().empty());
  }
}

}  // namespace
}  // namespace tilewright
