// Checks spec.worker.podTemplate against the restricted Pod Security Standard. A field of a wrong
// type is skipped here: the check of the types reports it.
#include <algorithm>

#include "common/base/strings.h"
#include "controller/api/object_reader.h"
#include "controller/api/pod_security.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

std::string describe(const json& value) {
  return value.is_string() ? describe_value(value.get_ref<const std::string&>()) : value.dump();
}

// The value at a dotted path; null if missing.
const json& value_at(const json& object, std::string_view path) {
  const json* value = &object;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = &member(*value, std::string(path.substr(0, dot)).c_str());
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return *value;
}

bool same_type(const json& a, const json& b) {
  return a.is_number_integer() ? b.is_number_integer() : a.type() == b.type();
}

void check_rules(const json& object, const std::string& path, std::span<const SecurityRule> rules,
                 FindingCollector& collector) {
  for (const SecurityRule& rule : rules) {
    const json& value = value_at(object, rule.field);
    if (!same_type(rule.values.front(), value) || rule.allows(value)) continue;
    report_pod_security_violation(collector, path + "." + rule.field, describe(value),
                                  rule.expected);
  }
}

void check_sysctls(const json& spec, const std::string& path, FindingCollector& collector) {
  const json& sysctls = member(member(spec, "securityContext"), "sysctls");
  for (std::size_t i = 0; sysctls.is_array() && i < sysctls.size(); ++i) {
    const json& name = member(sysctls[i], "name");
    if (!name.is_string() ||
        std::ranges::find(safe_sysctls(), name.get<std::string>()) != safe_sysctls().end()) {
      continue;
    }
    report_pod_security_violation(
        collector, element_path(path + ".securityContext.sysctls", i) + ".name", describe(name),
        "a sysctl that is safe, such as net.ipv4.tcp_rmem");
  }
}

void check_capabilities(const json& container, const std::string& path,
                        FindingCollector& collector) {
  const json& capabilities = member(member(container, "securityContext"), "capabilities");
  const std::string place = path + ".securityContext.capabilities";
  const json& added = member(capabilities, "add");
  for (std::size_t i = 0; added.is_array() && i < added.size(); ++i) {
    if (added[i] == "NET_BIND_SERVICE") continue;
    report_pod_security_violation(collector, element_path(place + ".add", i), added[i].dump(),
                                  "no capability");
  }
  const json& dropped = member(capabilities, "drop");
  if (dropped.is_array() && std::ranges::find(dropped, "ALL") == dropped.end()) {
    report_pod_security_violation(collector, place + ".drop", "a list without ALL", "ALL in it");
  }
}

void check_host_ports(const json& container, const std::string& path, FindingCollector& collector) {
  const json& ports = member(container, "ports");
  for (std::size_t i = 0; ports.is_array() && i < ports.size(); ++i) {
    const json& port = member(ports[i], "hostPort");
    if (!port.is_number_integer() || port == 0) continue;
    report_pod_security_violation(collector, element_path(path + ".ports", i) + ".hostPort",
                                  port.dump(), "no host port");
  }
}

void check_annotations(const json& overlay, FindingCollector& collector) {
  const json& annotations = member(member(overlay, "metadata"), "annotations");
  if (!annotations.is_object()) return;
  for (const auto& [name, value] : annotations.items()) {
    if (!name.starts_with(kAppArmorAnnotationPrefix) || !value.is_string()) continue;
    const auto& profile = value.get_ref<const std::string&>();
    if (profile.empty() || profile == kAppArmorRuntimeDefault ||
        profile.starts_with(kAppArmorLocalPrefix)) {
      continue;
    }
    report_pod_security_violation(
        collector, member_path(std::string(kPodTemplatePath) + ".metadata.annotations", name),
        describe(value),
        fmt::format("{} or {}PROFILE", kAppArmorRuntimeDefault, kAppArmorLocalPrefix));
  }
}

}  // namespace

void report_pod_security_violation(FindingCollector& collector, const std::string& path,
                                   const std::string& found, std::string_view expected) {
  collector.error(path, fmt::format("found {}, which restricted Pod Security forbids, expected {}",
                                    found, expected));
}

void validate_pod_security(const TrainJob& job, FindingCollector& collector) {
  const json& overlay = job.spec.worker.pod_template;
  check_annotations(overlay, collector);
  const json& spec = member(overlay, "spec");
  const std::string path = kPodSpecPath;
  check_rules(spec, path, pod_security_rules(), collector);
  check_sysctls(spec, path, collector);
  const json& volumes = member(spec, "volumes");
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    check_volume_sources(volumes[i], element_path(path + ".volumes", i), collector);
  }
  each_container(spec, path,
                 [&](const json& container, const std::string& place, std::string_view) {
                   check_rules(container, place, container_security_rules(), collector);
                   check_capabilities(container, place, collector);
                   check_host_ports(container, place, collector);
                 });
}

}  // namespace tilewright::api
