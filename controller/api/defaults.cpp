#include "controller/api/defaults.h"

#include <charconv>
#include <type_traits>

#include "common/base/check.h"
#include "common/json/members.h"
#include "controller/api/pytorchjob_fields.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {
namespace {

template <typename T>
T parse_default(std::string_view text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    return text == "true";
  } else if constexpr (std::is_same_v<T, ProcessCount>) {
    return parse_default<std::int64_t>(text);
  } else if constexpr (std::is_same_v<T, Quantity>) {
    return parse_quantity(text).value();
  } else if constexpr (std::is_enum_v<T>) {
    const std::span<const std::string_view> names = enum_names(T());
    std::size_t index = 0;
    while (index < names.size() && names[index] != text) ++index;
    TW_CHECK(index < names.size(), "found the default {}, expected a value of the enum", text);
    return static_cast<T>(index);
  } else {
    T number{};
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }
}

// Applies the defaults of the field lists.
struct DefaultSetter : FieldVisitor {
  template <typename T>
  void operator()(const Field& field, std::optional<T>& member) {
    if constexpr (requires { visit_fields(*this, *member); }) {
      if (member) visit_fields(*this, *member);
    } else {
      if (!member && field.default_value != nullptr) {
        member = parse_default<T>(field.default_value);
      }
    }
  }
  void operator()(const Field& field, std::string& member) {
    if (member.empty() && field.default_value != nullptr) member = field.default_value;
  }
  void operator()(const Field& field, std::map<std::string, Quantity>& member) {
    for (const auto& [name, amount] : field.default_entries) {
      if (!member.contains(name)) member[name] = parse_quantity(amount).value();
    }
  }
  void replica_specs(const Field&, std::optional<PyTorchReplicaSpec>& master,
                     std::optional<PyTorchReplicaSpec>& worker) {
    if (master) visit_fields(*this, *master);
    if (worker) visit_fields(*this, *worker);
  }
  // Lists, maps and JSON have no defaults.
  template <typename T>
  void operator()(const Field&, T& member) {
    if constexpr (requires { visit_fields(*this, member); }) visit_fields(*this, member);
  }
};

template <typename T>
void set_default(std::optional<T>& target, const T& value) {
  if (!target) target = value;
}

// Adds the port of the rendezvous to the container that trains.
void add_default_port(nlohmann::json& pod_template) {
  if (!member(member(pod_template, "spec"), "containers").is_array()) return;
  nlohmann::json& containers = pod_template["spec"]["containers"];
  if (containers.empty()) return;
  nlohmann::json* trains = &containers[0];
  for (nlohmann::json& container : containers) {
    if (string_member(container, "name") != kPyTorchContainer) continue;
    trains = &container;
    break;
  }
  if (!trains->is_object()) return;
  for (const nlohmann::json& port : member(*trains, "ports")) {
    if (string_member(port, "name") == kPyTorchPortName) return;
  }
  (*trains)["ports"].push_back({{"name", kPyTorchPortName}, {"containerPort", kPyTorchPort}});
}

}  // namespace

void apply_defaults(TrainJob& job) {
  TrainJobSpec& spec = job.spec;
  DefaultSetter setter;
  visit_fields(setter, spec);
  // These defaults depend on other fields.
  ElasticPolicy& elastic = spec.elastic_policy;
  set_default(elastic.min_replicas, *spec.worker.replicas);
  set_default(elastic.max_replicas, *spec.worker.replicas);
  set_default(elastic.max_restarts, spec.run_policy.backoff_limit.value_or(kDefaultMaxRestarts));
}

void apply_defaults(PyTorchJob& job) {
  PyTorchJobSpec& spec = job.spec;
  DefaultSetter setter;
  visit_fields(setter, spec);
  for (std::optional<PyTorchReplicaSpec>* replica : {&spec.master, &spec.worker}) {
    if (*replica) add_default_port((*replica)->pod_template);
  }
  std::optional<PyTorchElasticPolicy>& elastic = spec.elastic_policy;
  if (elastic && spec.worker) {
    const std::int64_t replicas = *spec.worker->replicas;
    const std::int64_t most =
        elastic->max_replicas.value_or(elastic->min_replicas.value_or(replicas));
    set_default(elastic->min_replicas, most);
    set_default(elastic->max_replicas, most);
  }
  if (!elastic || !elastic->nproc_per_node) set_default(spec.nproc_per_node, std::string("auto"));
}

}  // namespace tilewright::api
