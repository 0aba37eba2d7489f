// The restricted Pod Security Standard for spec.worker.podTemplate (kubernetes.io: "Pod Security
// Standards", as of Kubernetes 1.34). validate() and the CRD read the same rules.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::api {

// The values that a field may have. An absent field is always allowed.
struct SecurityRule {
  std::string field;      // relative to the pod's spec or the container: securityContext.privileged
  nlohmann::json values;  // a list of booleans, integers or strings
  bool allowed = true;    // false: every value except these
  std::string expected;   // for the message

  bool allows(const nlohmann::json& value) const;
};

std::span<const SecurityRule> pod_security_rules();
// Of each container, the operator's and others, init containers included.
std::span<const SecurityRule> container_security_rules();

// The names that securityContext.sysctls of a pod may set.
std::span<const std::string_view> safe_sysctls();

// Annotations PREFIX + CONTAINER set the AppArmor profile of a container, as its securityContext
// does.
inline constexpr std::string_view kAppArmorAnnotationPrefix =
    "container.apparmor.security.beta.kubernetes.io/";
inline constexpr std::string_view kAppArmorRuntimeDefault = "runtime/default";
inline constexpr std::string_view kAppArmorLocalPrefix = "localhost/";

// The standard requires these of each container. Adds them to the containers of a pod's spec that
// do not set them: no privilege escalation, no capabilities.
void restrict_containers(nlohmann::json& pod_spec);

}  // namespace tilewright::api
