// Tests of the chart's alert rules with promtool and of the dashboard file. The queries of the
// dashboard are tested in tests/e2e/dashboard_test.cpp.
#include <gtest/gtest.h>

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

class Alerts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fs::exists(kPromtool)) return;
    const std::string reason =
        std::string(kPromtool) + " is missing: `.ci/install-packages .ci/packages-metrics.txt`";
    if (testing::prerequisites_required()) FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

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

TEST(DashboardFile, HasNamedPanelsThatDoNotOverlap) {
  const json dashboard =
      json::parse(testing::read_text(chart_folder() / "dashboards/tilewright.json"));
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
