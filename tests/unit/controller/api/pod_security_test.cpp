// What spec.worker.podTemplate may not contain under the restricted Pod Security Standard. A test
// in tests/integration compares these rules with an API server's own admission.
#include "controller/api/pod_security.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "controller/api/defaults.h"
#include "tests/unit/controller/api/manifest.h"

namespace tilewright::api {
namespace {

using nlohmann::json;
using testing::errors_of;
using testing::with;

std::string overlay_errors(const std::string& text) {
  return errors_of(with("sharedMemory: 64Mi", "podTemplate: " + text), Target::kCluster);
}

std::string violation(const std::string& field, const std::string& found,
                      const std::string& expected) {
  return fmt::format(
      "job.yaml:28: spec.worker.podTemplate.{}: found {}, which restricted Pod Security forbids, "
      "expected {}",
      field, found, expected);
}

// {a: {b: VALUE}} for a.b.
std::string nested(std::string_view path, const std::string& value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return fmt::format("{{{}: {}}}", path, value);
  return fmt::format("{{{}: {}}}", path.substr(0, dot), nested(path.substr(dot + 1), value));
}

struct Forbidden {
  const char* field;
  const char* value;
  const char* found;
  const char* expected;
};

constexpr const char* kProfiles = "RuntimeDefault or Localhost";
constexpr const char* kTypes =
    "one of container_t, container_init_t, container_kvm_t, container_engine_t";
constexpr Forbidden kOfPodAndContainer[] = {
    {"securityContext.runAsNonRoot", "false", "false", "true"},
    {"securityContext.runAsUser", "0", "0", "a user other than root"},
    {"securityContext.seccompProfile.type", "Unconfined", "Unconfined", kProfiles},
    {"securityContext.seccompProfile.type", "\"\"", "nothing", kProfiles},
    {"securityContext.appArmorProfile.type", "Unconfined", "Unconfined", kProfiles},
    {"securityContext.seLinuxOptions.type", "spc_t", "spc_t", kTypes},
    {"securityContext.seLinuxOptions.user", "system_u", "system_u", "no user"},
    {"securityContext.seLinuxOptions.role", "sysadm_r", "sysadm_r", "no role"},
    {"securityContext.windowsOptions.hostProcess", "true", "true", "false"},
};
constexpr Forbidden kOfPod[] = {
    {"hostNetwork", "true", "true", "false"},
    {"hostPID", "true", "true", "false"},
    {"hostIPC", "true", "true", "false"},
    {"os.name", "windows", "windows", "linux"},
};
constexpr Forbidden kOfContainer[] = {
    {"securityContext.privileged", "true", "true", "false"},
    {"securityContext.allowPrivilegeEscalation", "true", "true", "false"},
    {"securityContext.procMount", "Unmasked", "Unmasked", "Default"},
    {"livenessProbe.httpGet.host", "192.0.2.1", "192.0.2.1", "no host"},
    {"livenessProbe.tcpSocket.host", "192.0.2.1", "192.0.2.1", "no host"},
    {"readinessProbe.httpGet.host", "localhost", "localhost", "no host"},
    {"readinessProbe.tcpSocket.host", "localhost", "localhost", "no host"},
    {"startupProbe.httpGet.host", "a", "a", "no host"},
    {"startupProbe.tcpSocket.host", "a", "a", "no host"},
    {"lifecycle.postStart.httpGet.host", "a", "a", "no host"},
    {"lifecycle.postStart.tcpSocket.host", "a", "a", "no host"},
    {"lifecycle.preStop.httpGet.host", "a", "a", "no host"},
    {"lifecycle.preStop.tcpSocket.host", "a", "a", "no host"},
};

void expect_refused_in_pod(const Forbidden& tested) {
  EXPECT_EQ(overlay_errors(fmt::format("{{spec: {}}}", nested(tested.field, tested.value))),
            violation(fmt::format("spec.{}", tested.field), tested.found, tested.expected));
}

void expect_refused_in_containers(const Forbidden& tested) {
  for (const auto& [list, name] : {std::pair("containers", "worker"), std::pair("containers", "s"),
                                   std::pair("initContainers", "s")}) {
    const std::string fields = nested(tested.field, tested.value);
    EXPECT_EQ(
        overlay_errors(
            fmt::format("{{spec: {{{}: [{{name: {}, {}]}}}}", list, name, fields.substr(1))),
        violation(fmt::format("spec.{}[0].{}", list, tested.field), tested.found, tested.expected));
  }
}

TEST(PodSecurity, RefusesForbiddenFields) {
  for (const Forbidden& tested : kOfPodAndContainer) {
    expect_refused_in_pod(tested);
    expect_refused_in_containers(tested);
  }
  for (const Forbidden& tested : kOfPod) expect_refused_in_pod(tested);
  for (const Forbidden& tested : kOfContainer) expect_refused_in_containers(tested);
}

TEST(PodSecurity, RefusesForbiddenItems) {
  EXPECT_EQ(
      overlay_errors("{spec: {securityContext: {sysctls: [{name: net.ipv4.tcp_rmem, value: a}, "
                     "{name: kernel.msgmax, value: b}]}}}"),
      violation("spec.securityContext.sysctls[1].name", "kernel.msgmax",
                "a sysctl that is safe, such as net.ipv4.tcp_rmem"));
  EXPECT_EQ(overlay_errors("{spec: {initContainers: [{name: i, ports: [{containerPort: 1}, "
                           "{containerPort: 2, hostPort: 2}]}]}}"),
            violation("spec.initContainers[0].ports[1].hostPort", "2", "no host port"));
  EXPECT_EQ(overlay_errors("{metadata: {annotations: "
                           "{container.apparmor.security.beta.kubernetes.io/worker: unconfined}}}"),
            violation("metadata.annotations[\"container.apparmor.security.beta.kubernetes.io/"
                      "worker\"]",
                      "unconfined", "runtime/default or localhost/PROFILE"));
  EXPECT_EQ(overlay_errors("{spec: {ephemeralContainers: [{name: debug, image: i}]}}"),
            "job.yaml:28: spec.worker.podTemplate.spec.ephemeralContainers: must not be set: they "
            "are added to a running pod");
}

TEST(PodSecurity, AcceptsWhatTheStandardAllows) {
  for (const char* text : {
           "{spec: {securityContext: {seLinuxOptions: {level: 's0:c1', type: container_t}}}}",
           "{spec: {securityContext: {appArmorProfile: {type: Localhost, localhostProfile: p}}}}",
           "{spec: {securityContext: {windowsOptions: {hostProcess: false}, runAsUser: 5}}}",
           "{spec: {securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '0'}]}}}",
           "{spec: {hostNetwork: false, hostPID: false, hostIPC: false, os: {name: linux}}}",
           "{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/worker: "
           "runtime/default}}}",
           "{spec: {containers: [{name: worker, livenessProbe: {httpGet: {port: 9400, host: ''}}, "
           "securityContext: {procMount: Default, seccompProfile: {type: Localhost, "
           "localhostProfile: p}}}]}}",
       }) {
    EXPECT_EQ(overlay_errors(text), "") << text;
  }
}

// The check of the types reports wrong ones; this check must not fail at any.
TEST(PodSecurity, ReadsOverlaysOfWrongTypes) {
  TrainJob job = testing::job_of();
  const json values[] = {nullptr,
                         true,
                         0,
                         1.5,
                         "a",
                         json::array(),
                         json::array({1, "a", nullptr}),
                         json::object(),
                         {{"a", {{"b", 1}}}}};
  std::vector<std::string> fields = {"securityContext",
                                     "securityContext.sysctls",
                                     "securityContext.capabilities",
                                     "securityContext.capabilities.add",
                                     "securityContext.capabilities.drop",
                                     "ports",
                                     "volumes",
                                     "containers",
                                     "initContainers"};
  for (const auto rules : {pod_security_rules(), container_security_rules()}) {
    for (const SecurityRule& rule : rules) fields.push_back(rule.field);
  }
  const auto check = [&](const json& spec) {
    for (const json& outer : {json{{"spec", spec}}, json{{"metadata", spec}}, spec}) {
      job.spec.worker.pod_template = outer;
      EXPECT_NO_THROW((void)validate_for_cluster(job)) << outer;
      if (!spec.is_object()) continue;
      json restricted = spec;
      EXPECT_NO_THROW(restrict_containers(restricted)) << spec;
    }
  };
  for (const json& value : values) {
    check(value);
    for (const std::string& field : fields) {
      json tree = value;
      std::string path = field;
      while (!path.empty()) {
        const std::size_t dot = path.rfind('.');
        tree = json{{path.substr(dot == std::string::npos ? 0 : dot + 1), tree}};
        path = dot == std::string::npos ? "" : path.substr(0, dot);
        check(tree);
        check({{"containers", json::array({tree})}});
      }
    }
  }
}

TEST(PodSecurity, RestrictsContainersThatSetNothing) {
  json spec = json::parse(R"({"containers": [{"name": "a"},
      {"name": "b", "securityContext": {"readOnlyRootFilesystem": true,
       "capabilities": {"add": ["NET_BIND_SERVICE"]}}}], "initContainers": [{"name": "c"}]})");
  restrict_containers(spec);
  const json least =
      json::parse(R"({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})");
  EXPECT_EQ(spec["containers"][0]["securityContext"], least);
  EXPECT_EQ(spec["initContainers"][0]["securityContext"], least);
  json second = least;
  second["readOnlyRootFilesystem"] = true;
  second["capabilities"]["add"] = json::array({"NET_BIND_SERVICE"});
  EXPECT_EQ(spec["containers"][1]["securityContext"], second);
  const json once = spec;
  restrict_containers(spec);
  EXPECT_EQ(spec, once);
}

}  // namespace
}  // namespace tilewright::api
