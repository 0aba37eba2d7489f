#include "controller/api/object_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/printable.h"
#include "common/contract/nearest.h"
#include "common/contract/training_flags.h"
#include "common/json/timestamp.h"
#include "controller/api/decode.h"

namespace tilewright::api {
namespace {

// Fields of a TrainJob that have another name or path in a PyTorchJob or a pod.
struct FieldHint {
  std::string_view name;
  std::string_view path;
};
constexpr std::array kFieldHints = {
    FieldHint{"volumes", "spec.volumes"},
    FieldHint{"replicas", "spec.worker.replicas"},
    FieldHint{"pytorchReplicaSpecs", "spec.worker"},
    FieldHint{"image", "spec.worker.image"},
    FieldHint{"imagePullPolicy", "spec.worker.imagePullPolicy"},
    FieldHint{"resources", "spec.worker.resources"},
    FieldHint{"limits", "spec.worker.resources.cpu and .memory"},
    FieldHint{"requests", "spec.worker.resources.cpu and .memory"},
    FieldHint{"restartPolicy", "spec.worker.restartPolicy"},
    FieldHint{"nodeSelector", "spec.worker.nodeSelector"},
    FieldHint{"tolerations", "spec.worker.tolerations"},
    FieldHint{"affinity", "spec.worker.affinity"},
    FieldHint{"sharedMemory", "spec.worker.sharedMemory"},
    FieldHint{"env", "spec.worker.env"},
    FieldHint{"template", "spec.worker.podTemplate"},
    FieldHint{"args", "spec.trainer.args"},
    FieldHint{"command", "spec.trainer"},
    FieldHint{"volumeMounts", "spec.volumes"},
    FieldHint{"nprocPerNode", "spec.nprocPerNode"},
    FieldHint{"minReplicas", "spec.elasticPolicy.minReplicas"},
    FieldHint{"maxReplicas", "spec.elasticPolicy.maxReplicas"},
    FieldHint{"maxRestarts", "spec.elasticPolicy.maxRestarts"},
    FieldHint{"suspend", "spec.runPolicy.suspend"},
    FieldHint{"backoffLimit", "spec.runPolicy.backoffLimit"},
    FieldHint{"cleanPodPolicy", "spec.runPolicy.cleanPodPolicy"},
    FieldHint{"activeDeadlineSeconds", "spec.runPolicy.activeDeadlineSeconds"},
    FieldHint{"ttlSecondsAfterFinished", "spec.runPolicy.ttlSecondsAfterFinished"},
    FieldHint{"queue", "spec.runPolicy.schedulingPolicy.queue"},
    FieldHint{"epochs", "spec.trainer.num_train_epochs"},
    FieldHint{"lr", "spec.trainer.learning_rate"},
    FieldHint{"batch_size", "spec.trainer.per_device_train_batch_size"},
};

std::string suggested_path(std::string_view name) {
  for (const FieldHint& known : kFieldHints) {
    if (known.name == name) return std::string(known.path);
  }
  const TrainingFlag* flag = find_training_flag(name);
  if (flag != nullptr) return fmt::format("spec.trainer.{}", flag->name);
  return {};
}

// Why a TrainJob has no field of a PyTorchJob; empty: it is no such field.
std::string why_only_in_pytorchjob(std::string_view path, std::string_view name) {
  if (path != "spec.elasticPolicy") return "";
  if (name == "metrics") {
    return "only in a PyTorchJob: no HorizontalPodAutoscaler is created; create one whose "
           "scaleTargetRef is the TrainJob";
  }
  constexpr std::array<std::string_view, 4> kRendezvous = {"rdzvId", "rdzvHost", "rdzvPort",
                                                           "standalone"};
  const bool found = std::ranges::find(kRendezvous, name) != kRendezvous.end();
  return found ? "only in a PyTorchJob: the workers rendezvous through the operator" : "";
}

}  // namespace

void DecodeContext::error(const std::string& path, std::string message) const {
  add_error(errors, {path, positions.line_of(path), std::move(message)});
}

std::string describe_found(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::null:
      return "nothing";
    case nlohmann::json::value_t::object:
      return "an object";
    case nlohmann::json::value_t::array:
      return "a list";
    case nlohmann::json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      if (text.empty()) return "an empty string";
      return "the string " + quoted_excerpt(text);
    }
    case nlohmann::json::value_t::boolean:
      return value.get<bool>() ? "the boolean true" : "the boolean false";
    default:
      return "the number " + value.dump();
  }
}

ObjectReader::ObjectReader(const DecodeContext& context, const nlohmann::json& value,
                           std::string path)
    : context_(context), object_(&value), path_(std::move(path)) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  if (value.is_object()) return;
  if (!value.is_null()) {
    context_.error(path_, fmt::format("found {}, expected an object", describe_found(value)));
  }
  object_ = &kEmpty;
}

const nlohmann::json* ObjectReader::take(std::string_view name) {
  known_.insert(std::string(name));
  return peek(name);
}

const nlohmann::json* ObjectReader::peek(std::string_view name) const {
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ObjectReader::type_error(std::string_view name, const nlohmann::json& found,
                              std::string_view expected) const {
  context_.error(path_of(name),
                 fmt::format("found {}, expected {}", describe_found(found), expected));
}

template <typename Target>
void ObjectReader::take_string(std::string_view name, Target& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (value->is_string()) {
    target = value->get<std::string>();
  } else if (value->is_primitive()) {
    type_error(name, *value, "a string (put it in quotes)");
  } else {
    type_error(name, *value, "a string");
  }
}

void ObjectReader::string(std::string_view name, std::string& target) { take_string(name, target); }
void ObjectReader::string(std::string_view name, std::optional<std::string>& target) {
  take_string(name, target);
}

void ObjectReader::boolean(std::string_view name, std::optional<bool>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return type_error(name, *value, "true or false");
  target = value->get<bool>();
}

void ObjectReader::integer(std::string_view name, std::optional<std::int64_t>& target,
                           std::string_view expected) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  // An unsigned integer above INT64_MAX would wrap.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
  if (!fits) return type_error(name, *value, expected);
  target = value->get<std::int64_t>();
}

void ObjectReader::integer(std::string_view name, std::int64_t& target) {
  std::optional<std::int64_t> value;
  integer(name, value);
  if (value) target = *value;
}

void ObjectReader::number(std::string_view name, std::optional<double>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_number()) return type_error(name, *value, "a number");
  target = value->get<double>();
}

void ObjectReader::number(std::string_view name, double& target) {
  std::optional<double> value;
  number(name, value);
  if (value) target = *value;
}

void ObjectReader::timestamp(std::string_view name, Timestamp& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  target = value->is_string() ? parse_timestamp(value->get_ref<const std::string&>()) : Timestamp();
  if (!target) type_error(name, *value, "a time such as 2026-01-31T23:59:59Z");
}

void ObjectReader::quantity(std::string_view name, std::optional<Quantity>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  const std::string text = value->is_string()   ? value->get<std::string>()
                           : value->is_number() ? value->dump()
                                                : "";
  const std::optional<Quantity> amount = parse_quantity(text);
  if (!amount) {
    return type_error(name, *value, "a quantity such as 2, 500m or 2Gi" + quantity_hint(text));
  }
  if (value->is_number_float() && std::trunc(value->get<double>()) != value->get<double>()) {
    return type_error(
        name, *value,
        fmt::format("\"{}\" in quotes: the API server accepts an integer or a string", text));
  }
  target = amount;
}

void ObjectReader::strings(std::string_view name, std::vector<std::string>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return type_error(name, *value, "a list of strings");
  for (std::size_t i = 0; i < value->size(); ++i) {
    const nlohmann::json& item = (*value)[i];
    if (item.is_string()) {
      target.push_back(item.get<std::string>());
    } else {
      context_.error(
          element_path(path_of(name), i),
          fmt::format("found {}, expected a string{}", describe_found(item),
                      item.is_primitive() && !item.is_null() ? " (put it in quotes)" : ""));
    }
  }
}

void ObjectReader::string_map(std::string_view name, std::map<std::string, std::string>& target) {
  object(name, [&](ObjectReader& members) {
    for (const std::string& key : members.remaining()) members.string(key, target[key]);
  });
}

void ObjectReader::raw_object(std::string_view name, nlohmann::json& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_object()) return type_error(name, *value, "an object");
  target = *value;
}

void ObjectReader::raw_list(std::string_view name, nlohmann::json& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return type_error(name, *value, "a list");
  target = *value;
}

int ObjectReader::choice(std::string_view name, std::span<const std::string_view> names) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return -1;
  // Kubeflow's types have an empty string for a value that is not set.
  const auto* text = value->get_ptr<const std::string*>();
  if (context_.pytorchjob && text != nullptr && text->empty()) return -1;
  for (std::size_t i = 0; value->is_string() && i < names.size(); ++i) {
    if (*value == names[i]) return static_cast<int>(i);
  }
  type_error(name, *value, fmt::format("one of {}", fmt::join(names, ", ")));
  return -1;
}

void ObjectReader::object(std::string_view name, const std::function<void(ObjectReader&)>& decode) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  ObjectReader members(context_, *value, path_of(name));
  decode(members);
  members.finish();
}

void ObjectReader::each_object(std::string_view name,
                               const std::function<void(ObjectReader&)>& decode) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return type_error(name, *value, "a list");
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string path = element_path(path_of(name), i);
    if ((*value)[i].is_null()) {
      context_.error(path, "found nothing, expected an object");
      continue;
    }
    ObjectReader members(context_, (*value)[i], path);
    decode(members);
    members.finish();
  }
}

std::vector<std::string> ObjectReader::remaining() const {
  std::vector<std::string> names;
  for (const auto& member : object_->items()) {
    if (!known_.contains(member.key())) names.push_back(member.key());
  }
  return names;
}

void ObjectReader::finish() {
  if (context_.validation == FieldValidation::kIgnore) return;
  const std::vector<std::string_view> candidates(known_.begin(), known_.end());
  for (const std::string& name : remaining()) {
    const std::string path = path_of(name);
    if (const std::string why = why_only_in_pytorchjob(path_, name);
        !context_.pytorchjob && !why.empty()) {
      context_.error(path, why);
      continue;
    }
    std::string place = context_.pytorchjob ? "" : suggested_path(name);
    if (place.empty() || place == path) {
      const std::string_view near = nearest_name(name, candidates);
      place = near.empty() ? "" : std::string(near);
    }
    context_.error(path, place.empty() ? "unknown field"
                                       : fmt::format("unknown field; did you mean {}?", place));
  }
}

}  // namespace tilewright::api
