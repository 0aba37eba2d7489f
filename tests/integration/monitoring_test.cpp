// Tests of the chart's alert rules and of queries of the dashboard with promtool, and of the
// dashboard file. tests/e2e/dashboard_test.cpp runs every query of the dashboard.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/integration/chart_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::chart_folder;
using testing::CommandResult;

constexpr const char* kPromtool = "/usr/bin/promtool";

CommandResult promtool(const std::vector<std::string>& arguments) {
  ChildCommand command;
  command.program = kPromtool;
  command.arguments = arguments;
  command.environment = environment_with_overrides({});
  return testing::run_command(command);
}

class Promtool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fs::exists(kPromtool)) return;
    const std::string reason =
        std::string(kPromtool) + " is missing: `.ci/install-packages .ci/packages-metrics.txt`";
    if (testing::prerequisites_required()) FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

using Alerts = Promtool;

TEST_F(Alerts, PassPromtoolCheck) {
  const CommandResult outcome =
      promtool({"check", "rules", (chart_folder() / "alerts/tilewright.rules.yaml").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(Alerts, FireOnlyWhenExpected) {
  const CommandResult outcome =
      promtool({"test", "rules", (testing::source_dir() / "charts/tests/alerts.yaml").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

// Every alert has a test in which it fires.
TEST_F(Alerts, AreAllTested) {
  const std::string tests = testing::read_text(testing::source_dir() / "charts/tests/alerts.yaml");
  const json rules =
      read_yaml(testing::read_text(chart_folder() / "alerts/tilewright.rules.yaml")).tree;
  for (const json& group : rules["groups"]) {
    for (const json& rule : group["rules"]) {
      const std::string name = rule["alert"];
      EXPECT_TRUE(std::regex_search(
          tests, std::regex("alertname: " + name + "\\n\\s+exp_alerts:[^\\n]*\\n\\s+- exp_labels")))
          << name;
    }
  }
}

json read_dashboard() {
  return json::parse(testing::read_text(chart_folder() / "dashboards/tilewright.json"));
}

class DashboardQueries : public Promtool {
 protected:
  struct Sample {
    std::string series;
    double value;
  };
  // Fails unless the panel's queries, with all namespaces and jobs selected, return the samples.
  void expect_samples(const std::string& title, const std::vector<Sample>& input,
                      const std::vector<std::vector<Sample>>& expected) {
    json series = json::array();
    for (const auto& [name, value] : input) {
      series.push_back({{"series", name}, {"values", std::to_string(value)}});
    }
    json tests = json::array();
    const json dashboard = read_dashboard();
    for (const json& panel : dashboard["panels"]) {
      if (panel["title"] != title) continue;
      ASSERT_EQ(panel["targets"].size(), expected.size()) << title;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        json samples = json::array();
        for (const auto& [labels, value] : expected[i]) {
          samples.push_back({{"labels", labels}, {"value", value}});
        }
        tests.push_back({{"expr", std::regex_replace(panel["targets"][i]["expr"].get<std::string>(),
                                                     std::regex("\\$(namespace|trainjob)"), ".*")},
                         {"eval_time", "0m"},
                         {"exp_samples", samples}});
      }
    }
    ASSERT_FALSE(tests.empty()) << "no panel " << title;
    const fs::path file = directory_.path() / "test.yaml";
    std::ofstream(file) << json{
        {"tests", {{{"input_series", series}, {"promql_expr_test", tests}}}}};
    const CommandResult outcome = promtool({"test", "rules", file.string()});
    EXPECT_EQ(outcome.exit_code, 0) << title << ": " << outcome.output << outcome.error;
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(DashboardQueries, NamePyTorchJobs) {
  expect_samples(
      "Worker restarts by cause",
      {{R"(tilewright_job_restarts_total{namespace="a",trainjob="t",cause="Program"})", 1},
       {R"(tilewright_job_restarts_total{namespace="a",pytorchjob="p",cause="Program"})", 2},
       {R"(tilewright_job_restarts_total{namespace="a",pytorchjob="q",cause="Program"})", 3}},
      {{{R"({namespace="a",trainjob="t",cause="Program"})", 1},
        {R"({namespace="a",trainjob="p",cause="Program"})", 2},
        {R"({namespace="a",trainjob="q",cause="Program"})", 3}}});
  const std::vector<Sample> of_status = {
      {R"(tilewright_job_evaluation{namespace="a",trainjob="t",metric="f1"})", 0.25},
      {R"(tilewright_job_evaluation{namespace="a",pytorchjob="p",metric="f1"})", 0.5},
      {R"(tilewright_job_evaluation{namespace="a",pytorchjob="q",metric="f1"})", 0.75}};
  const std::vector<Sample> expected = {{R"({namespace="a",trainjob="t",metric="f1"})", 0.25},
                                        {R"({namespace="a",trainjob="p",metric="f1"})", 0.5},
                                        {R"({namespace="a",trainjob="q",metric="f1"})", 0.75}};
  expect_samples("Results", of_status, {expected});
  // Workers of PyTorchJobs have the label trainjob.
  std::vector<Sample> of_workers = of_status;
  of_workers.push_back(
      {R"(tilewright_evaluation{namespace="a",trainjob="p",worker="0",metric="f1"})", 0.5});
  expect_samples("Evaluation", of_workers, {expected});
}

// Replicas of one operator export the same numbers.
TEST_F(DashboardQueries, AddUpTheNumbersOfSeveralOperators) {
  const auto series = [](const std::string& metric, const std::string& more = "") {
    return std::vector<Sample>{{metric + "{namespace=\"a\",pod=\"0\"" + more + "}", 5},
                               {metric + "{namespace=\"a\",pod=\"1\"" + more + "}", 5},
                               {metric + "{namespace=\"b\",pod=\"0\"" + more + "}", 1}};
  };
  const std::vector<Sample> sum = {{"{}", 6}};
  expect_samples("Jobs by phase",
                 series("tilewright_controller_jobs", R"(,kind="TrainJob",phase="Failed")"),
                 {{{R"({phase="Failed"})", 6}}});
  std::vector<Sample> workers = series("tilewright_controller_pods");
  std::ranges::copy(series("tilewright_controller_rendezvous_members"),
                    std::back_inserter(workers));
  expect_samples("Workers", workers, {sum, sum});
  std::vector<Sample> queue = series("tilewright_controller_workqueue_depth");
  std::ranges::copy(series("tilewright_controller_workqueue_in_progress"),
                    std::back_inserter(queue));
  expect_samples("Work queue", queue, {sum, sum});
}

TEST(DashboardFile, HasNamedPanelsThatDoNotOverlap) {
  const json dashboard = read_dashboard();
  std::set<int> ids;
  std::set<std::pair<int, int>> taken;
  for (const json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["title"];
    EXPECT_FALSE(panel["title"].get<std::string>().empty());
    const json& place = panel["gridPos"];
    for (int x = place["x"]; x < place["x"].get<int>() + place["w"].get<int>(); ++x) {
      EXPECT_LT(x, 24) << panel["title"];
      for (int y = place["y"]; y < place["y"].get<int>() + place["h"].get<int>(); ++y) {
        EXPECT_TRUE(taken.insert({x, y}).second) << panel["title"] << " overlaps another panel";
      }
    }
    if (panel["type"] == "row") continue;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}");
    EXPECT_FALSE(panel["description"].get<std::string>().empty());
  }
}

}  // namespace
}  // namespace tilewright
