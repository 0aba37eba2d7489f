#include "controller/api/pod_template_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/labels.h"
#include "common/contract/pod_paths.h"
#include "common/contract/ports.h"
#include "controller/api/cel.h"
#include "controller/api/crd.h"
#include "controller/api/pod_security.h"
#include "controller/api/training_programs.h"
#include "controller/api/volume_sources.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

json string_type(std::int64_t max_length = 0) {
  json schema = {{"type", "string"}};
  if (max_length > 0) schema["maxLength"] = max_length;
  return schema;
}
json integer_type() { return {{"type", "integer"}, {"format", "int64"}}; }
json boolean_type() { return {{"type", "boolean"}}; }
json list_of(json items, std::int64_t max_items) {
  return {{"type", "array"}, {"maxItems", max_items}, {"items", std::move(items)}};
}
json map_of_strings() {
  return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
}
// With other fields kept.
json open_object(json properties = nullptr) {
  json schema = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
  if (!properties.is_null()) schema["properties"] = std::move(properties);
  return schema;
}

Rule set_elsewhere(const std::string& rule, const char* reason, const char* field) {
  return {.rule = rule,
          .message = fmt::format("must not be set: {}", reason),
          .field_path = fmt::format(".{}", field)};
}

constexpr std::int64_t kMaxSecurityValue = 253;  // a host name

// Where `found` is CEL for a string.
std::string forbidden_message(std::string_view found, std::string_view expected) {
  return fmt::format(
      "\"found %s, which restricted Pod Security forbids, expected {}\".format([{}])", expected,
      found);
}

json schema_of_value(const json& example) {
  if (example.is_boolean()) return boolean_type();
  if (example.is_number()) return integer_type();
  return string_type(kMaxSecurityValue);
}

json schema_of_rule(const SecurityRule& rule) {
  std::vector<std::string> values;
  for (const json& value : rule.values) {
    values.push_back(value.is_string() ? cel::literal(value.get<std::string>()) : value.dump());
  }
  const char* const shown =
      rule.values.front().is_string() ? "self == '' ? 'nothing' : self" : "string(self)";
  json schema = schema_of_value(rule.values.front());
  schema["x-kubernetes-validations"] = rules_schema(
      {{.rule = fmt::format("{}(self in [{}])", rule.allowed ? "" : "!", fmt::join(values, ", ")),
        .message_expression = forbidden_message(shown, rule.expected)}});
  return schema;
}

// Puts the schema of each rule at its path below `object`.
void add_security_rules(json& object, std::span<const SecurityRule> rules) {
  for (const SecurityRule& rule : rules) {
    json* parent = &object;
    std::size_t start = 0;
    for (std::size_t dot = rule.field.find('.'); dot != std::string::npos;
         dot = rule.field.find('.', start)) {
      json& child = (*parent)["properties"][rule.field.substr(start, dot - start)];
      if (child.is_null()) child = open_object();
      parent = &child;
      start = dot + 1;
    }
    (*parent)["properties"][rule.field.substr(start)] = schema_of_rule(rule);
  }
}

json capabilities() {
  json added = string_type(63);
  added["x-kubernetes-validations"] =
      rules_schema({{.rule = "self == 'NET_BIND_SERVICE'",
                     .message_expression = forbidden_message("self", "no capability")}});
  json drop = list_of(string_type(63), 64);
  drop["x-kubernetes-validations"] = rules_schema(
      {{.rule = "'ALL' in self",
        .message = "found a list without ALL, which restricted Pod Security forbids, expected ALL "
                   "in it"}});
  return open_object({{"add", list_of(added, 64)}, {"drop", drop}});
}

json sysctls() {
  json name = string_type(253);
  std::vector<std::string> safe(safe_sysctls().begin(), safe_sysctls().end());
  name["x-kubernetes-validations"] =
      rules_schema({{.rule = fmt::format("self in {}", cel::list(safe)),
                     .message_expression = forbidden_message(
                         "self", "a sysctl that is safe, such as net.ipv4.tcp_rmem")}});
  return list_of(open_object({{"name", name}}), 64);
}

json annotations() {
  json schema = map_of_strings();
  schema["maxProperties"] = 256;
  schema["x-kubernetes-validations"] = rules_schema(
      {{.rule =
            fmt::format("self.all(name, !name.startsWith('{0}') || self[name] in ['', '{1}'] || "
                        "self[name].startsWith('{2}'))",
                        kAppArmorAnnotationPrefix, kAppArmorRuntimeDefault, kAppArmorLocalPrefix),
        .message = fmt::format("found an AppArmor profile, which restricted Pod Security forbids, "
                               "expected {} or {}PROFILE",
                               kAppArmorRuntimeDefault, kAppArmorLocalPrefix)}});
  return schema;
}

// The name and the words of the command line of a container. CEL compares whole words and their
// ends: the cost of a search within the longest script is too high. The operator searches there.
json not_pytorch(json name) {
  name["x-kubernetes-validations"].push_back(
      rules_schema({{.rule = fmt::format("self != '{}'", kPyTorchContainer),
                     .message = fmt::format("found {}, {}", kPyTorchContainer, kNoOtherTraining)}})
          .front());
  return name;
}

json command_words() {
  std::vector<std::string> parts;
  parts.reserve(std::size(kTrainingPrograms));
  for (const std::string_view program : kTrainingPrograms) {
    parts.push_back(fmt::format("!self.startsWith('{0}') && !self.endsWith('{0}')", program));
  }
  json word = string_type(65536);
  word["x-kubernetes-validations"] = rules_schema(
      {{.rule = fmt::format("{}", fmt::join(parts, " && ")),
        .message = fmt::format("found the program of a training, {}", kNoOtherTraining)}});
  return list_of(word, 256);
}

json ports() {
  json number = integer_type();
  number["x-kubernetes-validations"] =
      rules_schema({{.rule = fmt::format("!(self in [{}, {}])", kTransportPort, kWorkerMetricsPort),
                     .message_expression = cel::found(
                         "another port: the worker listens on this one", "self", "%d")}});
  json host_port = integer_type();
  host_port["x-kubernetes-validations"] =
      rules_schema({{.rule = "self == 0",
                     .message_expression = forbidden_message("string(self)", "no host port")}});
  return list_of(open_object({{"hostPort", host_port}, {"containerPort", number}}), 64);
}

json volumes() {
  json name = string_type(63);
  name["x-kubernetes-validations"] = rules_schema({cel::unreserved_volume_name()});
  json properties = {{"name", name}, {"emptyDir", empty_dir_schema()}};
  std::vector<std::string> absent;
  std::string first_found;
  const std::vector<std::string_view> sources = forbidden_volume_sources();
  for (const std::string_view source : sources) {
    properties[std::string(source)] = open_object();
    absent.push_back(fmt::format("!has(self.{})", source));
    first_found += source == sources.back() ? fmt::format("'{}'", source)
                                            : fmt::format("has(self.{0}) ? '{0}' : ", source);
  }
  json volume = open_object(properties);
  volume["x-kubernetes-validations"] = rules_schema(
      {shared_memory_volume_rule(),
       {.rule = fmt::format("{}", fmt::join(absent, " && ")),
        .message_expression = forbidden_message(first_found, "a persistentVolumeClaim")}});
  return list_of(volume, 64);
}

// Rules for the operator's own container apply to no other one.
std::vector<Rule> worker_container_rules() {
  const std::string other = fmt::format("self.name != '{}' || ", kWorkerContainer);
  const auto absent = [&](const char* field, const char* reason) {
    return set_elsewhere(fmt::format("{}!has(self.{})", other, field), reason, field);
  };
  constexpr const char* kLastLines = "the operator reads the last lines of its log";
  std::vector<Rule> rules = {
      absent("image", "use spec.worker.image"),
      absent("command", "use spec.trainer"),
      absent("args", "use spec.trainer.args"),
      {.rule = other + "!has(self.env) || self.env.all(e, !(e.name in " +
               cel::runtime_variable_list() + "))",
       .message =
           "found a variable of the operator, expected a name that the operator does not set "
           "itself",
       .field_path = ".env"},
      absent("resources", "use spec.worker.resources"),
      absent("terminationMessagePolicy", kLastLines),
      absent("terminationMessagePath", kLastLines)};
  const std::initializer_list<std::pair<const char*, const char*>> reserved_mounts = {
      {"/dev/shm", "use spec.worker.sharedMemory"},
      {kJobKeyDirectory, "the operator mounts the job's key there"}};
  for (const auto& [directory, reason] : reserved_mounts) {
    rules.push_back(
        {.rule = fmt::format("{}!has(self.volumeMounts) || !self.volumeMounts.exists(m, "
                             "(m.mountPath + '/').startsWith('{}/'))",
                             other, directory),
         .message = fmt::format("found {}, expected another path: {}", directory, reason),
         .field_path = ".volumeMounts"});
  }
  return rules;
}

json required_name(json schema, const char* field) {
  schema["required"] = json::array({field});
  return schema;
}

void add_container_security(json& container) {
  add_security_rules(container, container_security_rules());
  container["properties"]["securityContext"]["properties"]["capabilities"] = capabilities();
}

json containers() {
  json container = required_name(
      open_object(
          {{"name", not_pytorch(string_type(63))},
           {"image", string_type(1024)},
           {"command", command_words()},
           {"args", command_words()},
           {"env", list_of(required_name(open_object({{"name", string_type(256)}}), "name"), 128)},
           {"resources", open_object()},
           {"terminationMessagePolicy", string_type(63)},
           {"terminationMessagePath", string_type(1024)},
           {"volumeMounts",
            list_of(required_name(open_object({{"mountPath", string_type(1024)}}), "mountPath"),
                    64)},
           {"ports", ports()}}),
      "name");
  add_container_security(container);
  container["x-kubernetes-validations"] = rules_schema(worker_container_rules());
  json schema = list_of(container, 16);
  schema["description"] =
      fmt::format("Containers of the pod. The operator's container is named {}.", kWorkerContainer);
  return schema;
}

json init_containers() {
  json name = string_type(63);
  name["x-kubernetes-validations"] = rules_schema(
      {{.rule = fmt::format("self != '{}'", kWorkerContainer),
        .message = fmt::format("found {}, expected another name: it is the name of the operator's "
                               "container",
                               kWorkerContainer)}});
  json container = required_name(open_object({{"name", not_pytorch(name)},
                                              {"command", command_words()},
                                              {"args", command_words()},
                                              {"ports", ports()}}),
                                 "name");
  add_container_security(container);
  json schema = list_of(container, 16);
  schema["description"] = "Init containers, as in a pod.";
  return schema;
}

json pod_spec() {
  json schema = open_object({{"restartPolicy", string_type()},
                             {"activeDeadlineSeconds", integer_type()},
                             {"subdomain", string_type()},
                             {"hostname", string_type()},
                             {"volumes", volumes()},
                             {"containers", containers()},
                             {"initContainers", init_containers()},
                             {"ephemeralContainers", list_of(open_object(), 16)}});
  add_security_rules(schema, pod_security_rules());
  schema["properties"]["securityContext"]["properties"]["sysctls"] = sysctls();
  schema["description"] =
      "Spec of the pod. Fields of a PodSpec that are not listed here are allowed, such as "
      "topologySpreadConstraints and dnsConfig; the listed ones are restricted or must not be set.";
  const std::pair<const char*, const char*> places[] = {
      {"restartPolicy", "use spec.worker.restartPolicy"},
      {"activeDeadlineSeconds", "use spec.runPolicy.activeDeadlineSeconds"},
      {"subdomain", "the operator sets it"},
      {"hostname", "the operator sets it"},
      {"ephemeralContainers", "they are added to a running pod"}};
  std::vector<Rule> rules;
  for (const auto& [field, reason] : places) {
    rules.push_back(set_elsewhere(fmt::format("!has(self.{})", field), reason, field));
  }
  schema["x-kubernetes-validations"] = rules_schema(rules);
  return schema;
}

}  // namespace

json pod_template_schema() {
  return {{"type", "object"},
          {"properties",
           {{"metadata",
             {{"type", "object"},
              {"properties", {{"labels", map_of_strings()}, {"annotations", annotations()}}}}},
            {"spec", pod_spec()}}}};
}

}  // namespace tilewright::api
