#include "controller/api/pod_template_types.h"

#include "controller/api/quantity.h"
#include "controller/api/trainjob.h"
#include "controller/api/volume_sources.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

enum class Shape {
  kString,
  kInteger,
  kBoolean,
  kStrings,     // a list of strings
  kIntegers,    // a list of integers
  kStringMap,   // an object whose values are strings
  kQuantities,  // an object whose values are quantities
  kPullPolicy,
  kObject,  // an object of type `of`; of any content if `of` is empty
  kList,    // a list of objects of type `of`
  kAny,     // not checked
};

struct MemberType {
  std::string_view type;  // that has the member
  const char* name;
  Shape shape;
  std::string_view of = {};
};

// The types of the Kubernetes API reference, v1.35. Probes, affinity and other values that are only
// passed on are objects of any content.
constexpr MemberType kMembers[] = {
    {"PodTemplateSpec", "metadata", Shape::kObject, "ObjectMeta"},
    {"PodTemplateSpec", "spec", Shape::kObject, "PodSpec"},

    {"ObjectMeta", "labels", Shape::kStringMap},
    {"ObjectMeta", "annotations", Shape::kStringMap},
    {"ObjectMeta", "name", Shape::kAny},
    {"ObjectMeta", "generateName", Shape::kAny},
    {"ObjectMeta", "namespace", Shape::kAny},
    {"ObjectMeta", "ownerReferences", Shape::kAny},
    {"ObjectMeta", "finalizers", Shape::kAny},
    {"ObjectMeta", "uid", Shape::kAny},
    {"ObjectMeta", "resourceVersion", Shape::kAny},
    {"ObjectMeta", "generation", Shape::kAny},
    {"ObjectMeta", "selfLink", Shape::kAny},
    {"ObjectMeta", "creationTimestamp", Shape::kAny},
    {"ObjectMeta", "deletionTimestamp", Shape::kAny},
    {"ObjectMeta", "deletionGracePeriodSeconds", Shape::kAny},
    {"ObjectMeta", "managedFields", Shape::kAny},

    {"PodSpec", "containers", Shape::kList, "Container"},
    {"PodSpec", "initContainers", Shape::kList, "Container"},
    {"PodSpec", "volumes", Shape::kList, "Volume"},
    {"PodSpec", "securityContext", Shape::kObject, "PodSecurityContext"},
    {"PodSpec", "imagePullSecrets", Shape::kList, "LocalObjectReference"},
    {"PodSpec", "hostAliases", Shape::kList, "HostAlias"},
    {"PodSpec", "topologySpreadConstraints", Shape::kList, "TopologySpreadConstraint"},
    {"PodSpec", "tolerations", Shape::kList, "Toleration"},
    {"PodSpec", "readinessGates", Shape::kList, "PodReadinessGate"},
    {"PodSpec", "schedulingGates", Shape::kList, "PodSchedulingGate"},
    {"PodSpec", "resourceClaims", Shape::kList, "PodResourceClaim"},
    {"PodSpec", "nodeSelector", Shape::kStringMap},
    {"PodSpec", "overhead", Shape::kQuantities},
    {"PodSpec", "resources", Shape::kObject, "ResourceRequirements"},
    {"PodSpec", "affinity", Shape::kObject},
    {"PodSpec", "dnsConfig", Shape::kObject, "PodDNSConfig"},
    {"PodSpec", "os", Shape::kObject, "PodOS"},
    {"PodSpec", "restartPolicy", Shape::kString},
    {"PodSpec", "dnsPolicy", Shape::kString},
    {"PodSpec", "nodeName", Shape::kString},
    {"PodSpec", "hostname", Shape::kString},
    {"PodSpec", "subdomain", Shape::kString},
    {"PodSpec", "serviceAccountName", Shape::kString},
    {"PodSpec", "serviceAccount", Shape::kString},
    {"PodSpec", "schedulerName", Shape::kString},
    {"PodSpec", "priorityClassName", Shape::kString},
    {"PodSpec", "preemptionPolicy", Shape::kString},
    {"PodSpec", "runtimeClassName", Shape::kString},
    {"PodSpec", "priority", Shape::kInteger},
    {"PodSpec", "activeDeadlineSeconds", Shape::kInteger},
    {"PodSpec", "terminationGracePeriodSeconds", Shape::kInteger},
    {"PodSpec", "hostNetwork", Shape::kBoolean},
    {"PodSpec", "hostPID", Shape::kBoolean},
    {"PodSpec", "hostIPC", Shape::kBoolean},
    {"PodSpec", "hostUsers", Shape::kBoolean},
    {"PodSpec", "shareProcessNamespace", Shape::kBoolean},
    {"PodSpec", "setHostnameAsFQDN", Shape::kBoolean},
    {"PodSpec", "automountServiceAccountToken", Shape::kBoolean},
    {"PodSpec", "enableServiceLinks", Shape::kBoolean},
    {"PodSpec", "ephemeralContainers", Shape::kAny},
    {"PodSpec", "hostnameOverride", Shape::kAny},
    {"PodSpec", "workloadRef", Shape::kAny},

    {"LocalObjectReference", "name", Shape::kString},
    {"HostAlias", "ip", Shape::kString},
    {"HostAlias", "hostnames", Shape::kStrings},
    {"PodReadinessGate", "conditionType", Shape::kString},
    {"PodSchedulingGate", "name", Shape::kString},
    {"PodResourceClaim", "name", Shape::kString},
    {"PodResourceClaim", "resourceClaimName", Shape::kAny},
    {"PodResourceClaim", "resourceClaimTemplateName", Shape::kAny},
    {"PodOS", "name", Shape::kString},
    {"PodDNSConfig", "nameservers", Shape::kStrings},
    {"PodDNSConfig", "searches", Shape::kStrings},
    {"PodDNSConfig", "options", Shape::kAny},
    {"TopologySpreadConstraint", "topologyKey", Shape::kString},
    {"TopologySpreadConstraint", "whenUnsatisfiable", Shape::kString},
    {"TopologySpreadConstraint", "maxSkew", Shape::kInteger},
    {"TopologySpreadConstraint", "minDomains", Shape::kInteger},
    {"TopologySpreadConstraint", "labelSelector", Shape::kObject},
    {"TopologySpreadConstraint", "matchLabelKeys", Shape::kAny},
    {"TopologySpreadConstraint", "nodeAffinityPolicy", Shape::kAny},
    {"TopologySpreadConstraint", "nodeTaintsPolicy", Shape::kAny},
    {"Toleration", "key", Shape::kString},
    {"Toleration", "operator", Shape::kString},
    {"Toleration", "value", Shape::kString},
    {"Toleration", "effect", Shape::kString},
    {"Toleration", "tolerationSeconds", Shape::kInteger},

    {"Container", "name", Shape::kString},
    {"Container", "image", Shape::kString},
    {"Container", "imagePullPolicy", Shape::kPullPolicy},
    {"Container", "workingDir", Shape::kString},
    {"Container", "restartPolicy", Shape::kString},
    {"Container", "terminationMessagePath", Shape::kString},
    {"Container", "terminationMessagePolicy", Shape::kString},
    {"Container", "command", Shape::kStrings},
    {"Container", "args", Shape::kStrings},
    {"Container", "env", Shape::kList, "EnvVar"},
    {"Container", "envFrom", Shape::kList, "EnvFromSource"},
    {"Container", "ports", Shape::kList, "ContainerPort"},
    {"Container", "resources", Shape::kObject, "ResourceRequirements"},
    {"Container", "volumeMounts", Shape::kList, "VolumeMount"},
    {"Container", "volumeDevices", Shape::kList, "VolumeDevice"},
    {"Container", "securityContext", Shape::kObject, "SecurityContext"},
    {"Container", "livenessProbe", Shape::kObject},
    {"Container", "readinessProbe", Shape::kObject},
    {"Container", "startupProbe", Shape::kObject},
    {"Container", "lifecycle", Shape::kObject},
    {"Container", "stdin", Shape::kBoolean},
    {"Container", "stdinOnce", Shape::kBoolean},
    {"Container", "tty", Shape::kBoolean},
    {"Container", "resizePolicy", Shape::kAny},
    {"Container", "restartPolicyRules", Shape::kAny},

    {"EnvVar", "name", Shape::kString},
    {"EnvVar", "value", Shape::kString},
    {"EnvVar", "valueFrom", Shape::kObject},
    {"EnvFromSource", "prefix", Shape::kString},
    {"EnvFromSource", "configMapRef", Shape::kObject},
    {"EnvFromSource", "secretRef", Shape::kObject},
    {"ContainerPort", "name", Shape::kString},
    {"ContainerPort", "protocol", Shape::kString},
    {"ContainerPort", "hostIP", Shape::kString},
    {"ContainerPort", "containerPort", Shape::kInteger},
    {"ContainerPort", "hostPort", Shape::kInteger},
    {"ResourceRequirements", "limits", Shape::kQuantities},
    {"ResourceRequirements", "requests", Shape::kQuantities},
    {"ResourceRequirements", "claims", Shape::kList, "ResourceClaim"},
    {"ResourceClaim", "name", Shape::kString},
    {"ResourceClaim", "request", Shape::kAny},
    {"VolumeMount", "name", Shape::kString},
    {"VolumeMount", "mountPath", Shape::kString},
    {"VolumeMount", "subPath", Shape::kString},
    {"VolumeMount", "subPathExpr", Shape::kString},
    {"VolumeMount", "mountPropagation", Shape::kString},
    {"VolumeMount", "recursiveReadOnly", Shape::kString},
    {"VolumeMount", "readOnly", Shape::kBoolean},
    {"VolumeDevice", "name", Shape::kString},
    {"VolumeDevice", "devicePath", Shape::kString},

    {"PodSecurityContext", "runAsUser", Shape::kInteger},
    {"PodSecurityContext", "runAsGroup", Shape::kInteger},
    {"PodSecurityContext", "runAsNonRoot", Shape::kBoolean},
    {"PodSecurityContext", "fsGroup", Shape::kInteger},
    {"PodSecurityContext", "fsGroupChangePolicy", Shape::kString},
    {"PodSecurityContext", "supplementalGroups", Shape::kIntegers},
    {"PodSecurityContext", "supplementalGroupsPolicy", Shape::kString},
    {"PodSecurityContext", "sysctls", Shape::kList, "Sysctl"},
    {"PodSecurityContext", "seccompProfile", Shape::kObject, "SecurityProfile"},
    {"PodSecurityContext", "appArmorProfile", Shape::kObject, "SecurityProfile"},
    {"PodSecurityContext", "seLinuxOptions", Shape::kObject, "SELinuxOptions"},
    {"PodSecurityContext", "seLinuxChangePolicy", Shape::kString},
    {"PodSecurityContext", "windowsOptions", Shape::kObject, "WindowsOptions"},
    {"SecurityContext", "privileged", Shape::kBoolean},
    {"SecurityContext", "allowPrivilegeEscalation", Shape::kBoolean},
    {"SecurityContext", "readOnlyRootFilesystem", Shape::kBoolean},
    {"SecurityContext", "runAsUser", Shape::kInteger},
    {"SecurityContext", "runAsGroup", Shape::kInteger},
    {"SecurityContext", "runAsNonRoot", Shape::kBoolean},
    {"SecurityContext", "procMount", Shape::kString},
    {"SecurityContext", "capabilities", Shape::kObject, "Capabilities"},
    {"SecurityContext", "seccompProfile", Shape::kObject, "SecurityProfile"},
    {"SecurityContext", "appArmorProfile", Shape::kObject, "SecurityProfile"},
    {"SecurityContext", "seLinuxOptions", Shape::kObject, "SELinuxOptions"},
    {"SecurityContext", "windowsOptions", Shape::kObject, "WindowsOptions"},
    {"Capabilities", "add", Shape::kStrings},
    {"Capabilities", "drop", Shape::kStrings},
    {"SecurityProfile", "type", Shape::kString},
    {"SecurityProfile", "localhostProfile", Shape::kString},
    {"SELinuxOptions", "user", Shape::kString},
    {"SELinuxOptions", "role", Shape::kString},
    {"SELinuxOptions", "type", Shape::kString},
    {"SELinuxOptions", "level", Shape::kString},
    {"Sysctl", "name", Shape::kString},
    {"Sysctl", "value", Shape::kString},
    {"WindowsOptions", "hostProcess", Shape::kBoolean},
    {"WindowsOptions", "runAsUserName", Shape::kString},
    {"WindowsOptions", "gmsaCredentialSpec", Shape::kAny},
    {"WindowsOptions", "gmsaCredentialSpecName", Shape::kAny},

    // and the volume sources, which are objects
    {"Volume", "name", Shape::kString},
    {"PersistentVolumeClaim", "claimName", Shape::kString},
    {"PersistentVolumeClaim", "readOnly", Shape::kBoolean},
};

void check_members(ObjectReader& reader, std::string_view type);

void check_integers(ObjectReader& reader, const char* name) {
  const json* list = reader.take(name);
  if (list == nullptr) return;
  if (!list->is_array()) return reader.type_error(name, *list, "a list of integers");
  for (const json& item : *list) {
    if (!item.is_number_integer()) return reader.type_error(name, item, "a list of integers");
  }
}

void check_quantities(ObjectReader& reader, const char* name) {
  reader.object(name, [](ObjectReader& amounts) {
    for (const std::string& resource : amounts.remaining()) {
      const json* amount = amounts.take(resource);
      if (amount == nullptr) continue;
      const std::string text = amount->is_string()   ? amount->get<std::string>()
                               : amount->is_number() ? amount->dump()
                                                     : "";
      if (parse_quantity(text)) continue;
      amounts.type_error(resource, *amount,
                         "a quantity such as 2, 500m or 2Gi" + quantity_hint(text));
    }
  });
}

void check_member(ObjectReader& reader, const MemberType& member) {
  const auto check_content = [&](ObjectReader& inner) { check_members(inner, member.of); };
  switch (member.shape) {
    case Shape::kString: {
      std::string text;
      return reader.string(member.name, text);
    }
    case Shape::kInteger: {
      std::optional<std::int64_t> number;
      return reader.integer(member.name, number);
    }
    case Shape::kBoolean: {
      std::optional<bool> flag;
      return reader.boolean(member.name, flag);
    }
    case Shape::kStrings: {
      std::vector<std::string> list;
      return reader.strings(member.name, list);
    }
    case Shape::kIntegers:
      return check_integers(reader, member.name);
    case Shape::kStringMap: {
      std::map<std::string, std::string> map;
      return reader.string_map(member.name, map);
    }
    case Shape::kQuantities:
      return check_quantities(reader, member.name);
    case Shape::kPullPolicy:
      reader.choice(member.name, enum_names(ImagePullPolicy()));
      return;
    case Shape::kAny:
      return reader.ignore(member.name);
    case Shape::kObject:
      if (member.of.empty()) {
        json any;
        return reader.raw_object(member.name, any);
      }
      return reader.object(member.name, check_content);
    case Shape::kList:
      return reader.each_object(member.name, check_content);
  }
}

void check_volume_source(ObjectReader& reader, const VolumeSource& source) {
  reader.object(source.name, [&](ObjectReader& inner) {
    if (source.name != "persistentVolumeClaim") {
      for (const std::string& name : inner.remaining()) inner.ignore(name);
      return;
    }
    check_members(inner, "PersistentVolumeClaim");
  });
}

void check_members(ObjectReader& reader, std::string_view type) {
  for (const MemberType& member : kMembers) {
    if (member.type == type) check_member(reader, member);
  }
  if (type != "Volume") return;
  for (const VolumeSource& source : volume_sources()) check_volume_source(reader, source);
}

}  // namespace

void check_pod_template_types(const DecodeContext& context, const json& overlay,
                              const std::string& path) {
  if (overlay.is_null()) return;
  const DecodeContext lenient{context.positions, context.errors, FieldValidation::kIgnore,
                              context.pytorchjob};
  ObjectReader reader(lenient, overlay, path);
  check_members(reader, "PodTemplateSpec");
}

std::vector<FieldError> unknown_pod_fields(const json& pod_template, const std::string& path) {
  std::vector<FieldError> unknown;
  Positions no_lines;
  // As in a PyTorchJob: a misspelt field of a pod is no field of a TrainJob elsewhere.
  const DecodeContext strict{no_lines, unknown, FieldValidation::kStrict, true};
  ObjectReader reader(strict, pod_template, path);
  check_members(reader, "PodTemplateSpec");
  reader.finish();
  return unknown;
}

}  // namespace tilewright::api
