// Fixture of the chart tests: runs helm and applies the rendered objects to an API server.
#pragma once

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/json/document.h"
#include "tests/support/cluster_test.h"
#include "tests/support/paths.h"
#include "tests/support/run_command.h"

namespace tilewright::testing {

inline constexpr const char* kOperatorNamespace = "tilewright-system";

inline std::filesystem::path chart_folder() { return source_dir() / "charts/tilewright"; }

// The non-empty documents of a YAML stream.
inline std::vector<nlohmann::json> documents(const std::string& stream) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(stream + "\n---\n");
  std::string document;
  for (std::string line; std::getline(lines, line);) {
    if (line != "---") {
      document += line + "\n";
      continue;
    }
    if (document.find_first_not_of(" \n") != std::string::npos) {
      const Document read = read_yaml(document);
      EXPECT_TRUE(read.errors.empty()) << sentences(read.errors) << document;
      found.push_back(read.tree);
    }
    document.clear();
  }
  return found;
}

// Fails the test if there is not exactly one.
inline nlohmann::json find_only(const std::vector<nlohmann::json>& objects, const std::string& kind,
                                const std::string& name) {
  nlohmann::json found;
  for (const nlohmann::json& object : objects) {
    if (object.at("kind") != kind || object.at("metadata").at("name") != name) continue;
    EXPECT_TRUE(found.is_null()) << kind << " " << name << " exists twice";
    found = object;
  }
  EXPECT_FALSE(found.is_null()) << "no " << kind << " " << name;
  return found;
}

// Helm flags that enable everything that is off by default.
inline const std::vector<std::string> kDefaultFlags;
inline const std::vector<std::string> kAllFlags = {
    "--values", (source_dir() / "charts/tests/everything.yaml").string()};

class ChartTest : public ClusterTest {
 protected:
  ChartTest() : ClusterTest({"helm", "kubeconform"}) {}

  static const std::filesystem::path& programs() {
    static const std::filesystem::path folder = [] {
      ChildCommand command;
      command.program = source_dir() / ".ci/control-plane";
      command.arguments = {"folder"};
      command.environment = environment_with_overrides({});
      const std::string said = run_command(command).output;
      return std::filesystem::path(said.substr(0, said.find('\n')));
    }();
    return folder;
  }

  CommandResult run(const std::string& program, const std::vector<std::string>& arguments) const {
    ChildCommand command;
    command.program = programs() / program;
    command.arguments = arguments;
    command.environment =
        environment_with_overrides({{"HELM_CACHE_HOME", (folder() / "helm").string()},
                                    {"HELM_CONFIG_HOME", (folder() / "helm").string()},
                                    {"HELM_DATA_HOME", (folder() / "helm").string()}});
    command.separate_error = true;  // helm prints a notice about the link to the CRD
    return run_command(command);
  }

  CommandResult helm_template(const std::vector<std::string>& flags,
                              const std::filesystem::path& chart = chart_folder()) const {
    std::vector<std::string> arguments = {"template",    "tilewright",       chart.string(),
                                          "--namespace", kOperatorNamespace, "--kube-version",
                                          "1.34.4"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run("helm", arguments);
  }

  // Returns a YAML stream.
  std::string rendered_text(const std::vector<std::string>& flags) const {
    const CommandResult outcome = helm_template(flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.output;
  }
  std::vector<nlohmann::json> rendered(const std::vector<std::string>& flags) const {
    return documents(rendered_text(flags));
  }

  std::filesystem::path file(const std::string& name, const std::string& text) const {
    std::ofstream(folder() / name) << text;
    return folder() / name;
  }
  const std::filesystem::path& folder() const { return temporary_.path(); }

  static HttpsClient& admin() { return control_plane().admin(); }

  // Enforces the restricted Pod Security Standard.
  static void make_namespace(const std::string& name) {
    if (admin().get("/api/v1/namespaces/" + name).ok()) return;
    const HttpResponse made = admin().post(
        "/api/v1/namespaces",
        {{"metadata",
          {{"name", name}, {"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
    ASSERT_EQ(made.status, 201) << made.message();
  }

 private:
  TemporaryDirectory temporary_;
};

}  // namespace tilewright::testing
