#include "tests/e2e/kubernetes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>

namespace tilewright::testing {
namespace {

using nlohmann::json;

// Pods start within seconds; on a busy machine with two cores it may take a minute.
constexpr std::chrono::seconds kTimeout{120};

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// The kubectl of `make cluster` if it is built, otherwise that of PATH.
std::filesystem::path find_kubectl() {
  ChildCommand command;
  command.program = source_dir() / ".ci/control-plane";
  command.arguments = {"folder"};
  command.environment = environment_with_overrides({});
  const std::string folder = run_command(command).output;
  std::filesystem::path built = folder.substr(0, folder.find('\n'));
  built /= "kubectl";
  return access(built.c_str(), X_OK) == 0 ? built : std::filesystem::path("kubectl");
}

std::string image(const char* name) {
  return variable("TILEWRIGHT_IMAGES", "") + name + ":" + TILEWRIGHT_VERSION;
}

}  // namespace

std::string worker_image() { return image("tilewright-worker"); }
std::string tools_image() { return variable("TILEWRIGHT_TOOLS_IMAGE", image("tilewright-tools")); }

void KubernetesTest::SetUp() {
  kubectl_ = find_kubectl();
  std::string reason;
  if (variable("KUBECONFIG", "").empty()) {
    reason = "KUBECONFIG names no cluster: `make cluster` starts one and says what to export";
  } else if (const CommandResult seen = kubectl({"get", "--raw", "/readyz"}); seen.exit_code != 0) {
    reason = fmt::format("the cluster of KUBECONFIG={} does not answer: {}",
                         variable("KUBECONFIG", ""), seen.error);
  }
  if (!reason.empty()) {
    if (prerequisites_required()) FAIL() << reason;
    GTEST_SKIP() << reason;
  }
  const json made =
      create({{"apiVersion", "v1"},
              {"kind", "Namespace"},
              {"metadata",
               {{"generateName", "tilewright-e2e-"},
                {"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
  ASSERT_TRUE(made.is_object());
  namespace_ = made["metadata"]["name"];
  // Pods are rejected until the default service account exists.
  wait("serviceaccount/default", "{.metadata.name}", "default");
}

void KubernetesTest::TearDown() {
  if (namespace_.empty()) return;
  if (HasFailure()) {
    std::cout << describe_namespace() << "the namespace " << namespace_ << " is kept\n";
    return;
  }
  kubectl_ok({"delete", "namespace", namespace_, "--wait=false"});
}

CommandResult KubernetesTest::kubectl(std::vector<std::string> arguments) const {
  if (!namespace_.empty()) arguments.insert(arguments.begin(), "--namespace=" + namespace_);
  ChildCommand command;
  command.program = kubectl_;
  command.arguments = std::move(arguments);
  command.separate_error = true;  // keeps warnings out of the JSON
  // kubectl's discovery cache.
  command.environment =
      environment_with_overrides({{"KUBECACHEDIR", (folder_.path() / "kubectl").string()}});
  return run_command(command, kTimeout + std::chrono::seconds(30));
}

std::string KubernetesTest::kubectl_ok(const std::vector<std::string>& arguments) const {
  CommandResult outcome = kubectl(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << fmt::format("kubectl {}: {}", fmt::join(arguments, " "),
                                                 outcome.output + outcome.error);
  return std::move(outcome.output);
}

json KubernetesTest::create(const json& object) const {
  const std::filesystem::path path = folder_.path() / "object.json";
  std::ofstream(path) << object.dump();
  return json::parse(kubectl_ok({"create", "-f", path.string(), "-o", "json"}), nullptr, false);
}

json KubernetesTest::get(const std::string& resource) const {
  return json::parse(kubectl_ok({"get", resource, "-o", "json"}), nullptr, false);
}

std::chrono::duration<double> KubernetesTest::wait(const std::string& resource,
                                                   const std::string& path,
                                                   const std::string& value) const {
  const auto start = std::chrono::steady_clock::now();
  const std::string timeout_flag = fmt::format("--timeout={}s", kTimeout.count());
  kubectl_ok({"wait", "--for=create", resource, timeout_flag});
  kubectl_ok({"wait", fmt::format("--for=jsonpath={}={}", path, value), resource, timeout_flag});
  return std::chrono::steady_clock::now() - start;
}

void KubernetesTest::wait_for_log_line(const std::string& pod, const std::string& text) const {
  wait("pod/" + pod, "{.status.phase}", "Running");
  ChildCommand command;
  command.program = "/bin/sh";
  // kubectl ends by SIGPIPE when it prints a line after the match.
  command.arguments = {"-c",
                       R"(timeout "$0" "$1" --namespace="$2" logs -f "$3" | grep -m 1 -F -e "$4")",
                       std::to_string(kTimeout.count()),
                       kubectl_.string(),
                       namespace_,
                       pod,
                       text};
  command.environment = environment_with_overrides({});
  const CommandResult seen = run_command(command, kTimeout + std::chrono::seconds(30));
  EXPECT_EQ(seen.exit_code, 0) << "no line with \"" << text << "\" in the log of " << pod << ":\n"
                               << kubectl({"logs", "--tail=20", pod}).output;
}

std::string KubernetesTest::describe_namespace() const {
  std::string text;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"get", "pods", "-o", "wide"},
        {"get", "events", "--sort-by=.lastTimestamp"},
        {"logs", "--all-containers", "--prefix", "--tail=20", "--selector=e2e",
         "--ignore-errors"}}) {
    const CommandResult seen = kubectl(arguments);
    text += seen.output + seen.error + "\n";
  }
  return text;
}

json restricted_pod(const std::string& name, const std::string& image,
                    const std::vector<std::string>& command) {
  const json amounts = {{"cpu", "100m"}, {"memory", "64Mi"}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"labels", {{"e2e", name}}}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"automountServiceAccountToken", false},
            {"terminationGracePeriodSeconds", 1},
            {"securityContext",
             {{"runAsNonRoot", true},
              {"runAsUser", 65532},
              {"runAsGroup", 65532},
              {"fsGroup", 65532},
              {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
            {"containers",
             {{{"name", "main"},
               {"image", image},
               {"command", {command.front()}},
               {"args", std::vector<std::string>(command.begin() + 1, command.end())},
               {"resources", {{"requests", amounts}, {"limits", amounts}}},
               {"securityContext",
                {{"allowPrivilegeEscalation", false},
                 {"readOnlyRootFilesystem", true},
                 {"capabilities", {{"drop", {"ALL"}}}}}}}}}}}};
}

}  // namespace tilewright::testing
