#include "controller/api/pod_security.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace tilewright::api {
namespace {

using nlohmann::json;

SecurityRule only(std::string field, json values, std::string expected) {
  return {std::move(field), std::move(values), true, std::move(expected)};
}
SecurityRule none_of(std::string field, json values, std::string expected) {
  return {std::move(field), std::move(values), false, std::move(expected)};
}

// Of the securityContext of a pod and of a container.
std::vector<SecurityRule> context_rules() {
  const json profiles = json::array({"RuntimeDefault", "Localhost"});
  const char* const expected = "RuntimeDefault or Localhost";
  const std::vector<std::string> types = {"container_t", "container_init_t", "container_kvm_t",
                                          "container_engine_t"};
  json allowed_types = types;
  allowed_types.push_back("");
  const std::string context = "securityContext.";
  return {only(context + "runAsNonRoot", json::array({true}), "true"),
          none_of(context + "runAsUser", json::array({0}), "a user other than root"),
          only(context + "seccompProfile.type", profiles, expected),
          only(context + "appArmorProfile.type", profiles, expected),
          only(context + "seLinuxOptions.type", allowed_types,
               fmt::format("one of {}", fmt::join(types, ", "))),
          only(context + "seLinuxOptions.user", json::array({""}), "no user"),
          only(context + "seLinuxOptions.role", json::array({""}), "no role"),
          only(context + "windowsOptions.hostProcess", json::array({false}), "false")};
}

std::vector<SecurityRule> make_pod_rules() {
  std::vector<SecurityRule> rules = context_rules();
  for (const char* field : {"hostNetwork", "hostPID", "hostIPC"}) {
    rules.push_back(only(field, json::array({false}), "false"));
  }
  // The standard exempts pods of Windows from the rules for containers.
  rules.push_back(only("os.name", json::array({"linux"}), "linux"));
  return rules;
}

std::vector<SecurityRule> make_container_rules() {
  std::vector<SecurityRule> rules = context_rules();
  rules.push_back(only("securityContext.privileged", json::array({false}), "false"));
  rules.push_back(only("securityContext.allowPrivilegeEscalation", json::array({false}), "false"));
  rules.push_back(only("securityContext.procMount", json::array({"Default"}), "Default"));
  // The kubelet would connect to another host than the pod.
  for (const char* handler : {"livenessProbe", "readinessProbe", "startupProbe",
                              "lifecycle.postStart", "lifecycle.preStop"}) {
    for (const char* action : {"httpGet", "tcpSocket"}) {
      rules.push_back(
          only(fmt::format("{}.{}.host", handler, action), json::array({""}), "no host"));
    }
  }
  return rules;
}

}  // namespace

bool SecurityRule::allows(const json& value) const {
  return (std::ranges::find(values, value) != values.end()) == allowed;
}

std::span<const SecurityRule> pod_security_rules() {
  static const std::vector<SecurityRule> kRules = make_pod_rules();
  return kRules;
}

std::span<const SecurityRule> container_security_rules() {
  static const std::vector<SecurityRule> kRules = make_container_rules();
  return kRules;
}

std::span<const std::string_view> safe_sysctls() {
  static constexpr std::array<std::string_view, 12> kNames = {
      "kernel.shm_rmid_forced",           "net.ipv4.ip_local_port_range",
      "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
      "net.ipv4.ping_group_range",        "net.ipv4.tcp_fin_timeout",
      "net.ipv4.tcp_keepalive_intvl",     "net.ipv4.tcp_keepalive_probes",
      "net.ipv4.tcp_keepalive_time",      "net.ipv4.tcp_rmem",
      "net.ipv4.tcp_syncookies",          "net.ipv4.tcp_wmem"};
  return kNames;
}

void restrict_containers(json& pod_spec) {
  const auto set_default = [](json& object, const char* field, json value) {
    if (object.is_null()) object = json::object();
    if (object.is_object() && !object.contains(field)) object[field] = std::move(value);
  };
  for (const char* list : {"containers", "initContainers"}) {
    const auto containers = pod_spec.find(list);
    if (containers == pod_spec.end()) continue;
    for (json& container : *containers) {
      if (!container.is_object()) continue;
      json& context = container["securityContext"];
      set_default(context, "allowPrivilegeEscalation", false);
      set_default(context, "capabilities", json::object());
      if (context.is_object()) set_default(context["capabilities"], "drop", json::array({"ALL"}));
    }
  }
}

}  // namespace tilewright::api
