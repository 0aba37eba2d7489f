#include "controller/api/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "common/base/text.h"
#include "common/contract/nearest.h"
#include "common/contract/training_flags.h"
#include "controller/api/decode.h"

namespace tilewright::api {
namespace {

constexpr std::size_t kShownBytes = 80;

// Where fields stand that people look for elsewhere: because PyTorchJob or pods have them there, or
// by another name.
struct Elsewhere {
  std::string_view name;
  std::string_view path;
};
constexpr std::array kElsewhere = {
    Elsewhere{"volumes", "spec.volumes"},
    Elsewhere{"replicas", "spec.worker.replicas"},
    Elsewhere{"pytorchReplicaSpecs", "spec.worker"},
    Elsewhere{"image", "spec.worker.image"},
    Elsewhere{"imagePullPolicy", "spec.worker.imagePullPolicy"},
    Elsewhere{"resources", "spec.worker.resources"},
    Elsewhere{"limits", "spec.worker.resources.cpu and .memory"},
    Elsewhere{"requests", "spec.worker.resources.cpu and .memory"},
    Elsewhere{"restartPolicy", "spec.worker.restartPolicy"},
    Elsewhere{"nodeSelector", "spec.worker.nodeSelector"},
    Elsewhere{"tolerations", "spec.worker.tolerations"},
    Elsewhere{"affinity", "spec.worker.affinity"},
    Elsewhere{"sharedMemory", "spec.worker.sharedMemory"},
    Elsewhere{"env", "spec.worker.env"},
    Elsewhere{"template", "spec.worker.podTemplate"},
    Elsewhere{"args", "spec.trainer.args"},
    Elsewhere{"command", "spec.trainer"},
    Elsewhere{"volumeMounts", "spec.volumes"},
    Elsewhere{"nprocPerNode", "spec.nprocPerNode"},
    Elsewhere{"minReplicas", "spec.elasticPolicy.minReplicas"},
    Elsewhere{"maxReplicas", "spec.elasticPolicy.maxReplicas"},
    Elsewhere{"maxRestarts", "spec.elasticPolicy.maxRestarts"},
    Elsewhere{"suspend", "spec.runPolicy.suspend"},
    Elsewhere{"backoffLimit", "spec.runPolicy.backoffLimit"},
    Elsewhere{"cleanPodPolicy", "spec.runPolicy.cleanPodPolicy"},
    Elsewhere{"activeDeadlineSeconds", "spec.runPolicy.activeDeadlineSeconds"},
    Elsewhere{"ttlSecondsAfterFinished", "spec.runPolicy.ttlSecondsAfterFinished"},
    Elsewhere{"queue", "spec.runPolicy.schedulingPolicy.queue"},
    Elsewhere{"epochs", "spec.trainer.num_train_epochs"},
    Elsewhere{"lr", "spec.trainer.learning_rate"},
    Elsewhere{"batch_size", "spec.trainer.per_device_train_batch_size"},
};

std::string place_of(std::string_view name) {
  for (const Elsewhere& known : kElsewhere) {
    if (known.name == name) return std::string(known.path);
  }
  if (find_training_flag(name) != nullptr) return fmt::format("spec.trainer.{}", name);
  return {};
}

}  // namespace

void DecodeContext::error(const std::string& path, std::string message) const {
  errors.push_back({path, positions.line_of(path), std::move(message)});
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
      if (text.empty()) return "an empty text";
      if (text.size() <= kShownBytes) return fmt::format("the text \"{}\"", text);
      return fmt::format("the text \"{}...\"", text.substr(0, whole_characters(text, kShownBytes)));
    }
    case nlohmann::json::value_t::boolean:
      return value.get<bool>() ? "the boolean true" : "the boolean false";
    default:
      return "the number " + value.dump();
  }
}

Fields::Fields(const DecodeContext& context, const nlohmann::json& value, std::string path)
    : context_(context), object_(&value), path_(std::move(path)) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  if (value.is_object()) return;
  if (!value.is_null()) {
    context_.error(path_, fmt::format("found {}, expected an object", describe_found(value)));
  }
  object_ = &kEmpty;
}

const nlohmann::json* Fields::take(std::string_view name) {
  known_.insert(std::string(name));
  return peek(name);
}

const nlohmann::json* Fields::peek(std::string_view name) const {
  const auto found = object_->find(std::string(name));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void Fields::wrong(std::string_view name, const nlohmann::json& found,
                   std::string_view expected) const {
  context_.error(path_of(name),
                 fmt::format("found {}, expected {}", describe_found(found), expected));
}

template <typename Target>
void Fields::take_text(std::string_view name, Target& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (value->is_string()) {
    target = value->get<std::string>();
  } else if (value->is_primitive()) {
    wrong(name, *value, "a text (put it in quotes)");
  } else {
    wrong(name, *value, "a text");
  }
}

void Fields::text(std::string_view name, std::string& target) { take_text(name, target); }
void Fields::text(std::string_view name, std::optional<std::string>& target) {
  take_text(name, target);
}

void Fields::boolean(std::string_view name, std::optional<bool>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return wrong(name, *value, "true or false");
  target = value->get<bool>();
}

void Fields::integer(std::string_view name, std::optional<std::int64_t>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  // Unsigned beyond int64 would wrap.
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
  if (!fits) return wrong(name, *value, "a whole number");
  target = value->get<std::int64_t>();
}

void Fields::integer(std::string_view name, std::int64_t& target) {
  std::optional<std::int64_t> value;
  integer(name, value);
  if (value) target = *value;
}

void Fields::number(std::string_view name, std::optional<double>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_number()) return wrong(name, *value, "a number");
  target = value->get<double>();
}

void Fields::number(std::string_view name, double& target) {
  std::optional<double> value;
  number(name, value);
  if (value) target = *value;
}

void Fields::timestamp(std::string_view name, Timestamp& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  target = value->is_string() ? parse_timestamp(value->get_ref<const std::string&>()) : Timestamp();
  if (!target) wrong(name, *value, "a time such as 2026-01-31T23:59:59Z");
}

void Fields::quantity(std::string_view name, std::optional<Quantity>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  std::optional<Quantity> amount;
  if (value->is_string()) amount = parse_quantity(value->get_ref<const std::string&>());
  if (value->is_number()) amount = parse_quantity(value->dump());
  if (!amount) return wrong(name, *value, "a quantity such as 2, 500m or 2Gi");
  target = amount;
}

void Fields::texts(std::string_view name, std::vector<std::string>& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong(name, *value, "a list of texts");
  for (std::size_t i = 0; i < value->size(); ++i) {
    const nlohmann::json& item = (*value)[i];
    if (item.is_string()) {
      target.push_back(item.get<std::string>());
    } else {
      context_.error(
          element_path(path_of(name), i),
          fmt::format("found {}, expected a text{}", describe_found(item),
                      item.is_primitive() && !item.is_null() ? " (put it in quotes)" : ""));
    }
  }
}

void Fields::text_map(std::string_view name, std::map<std::string, std::string>& target) {
  object(name, [&](Fields& members) {
    for (const std::string& key : members.rest()) members.text(key, target[key]);
  });
}

void Fields::raw_object(std::string_view name, nlohmann::json& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_object()) return wrong(name, *value, "an object");
  target = *value;
}

void Fields::raw_list(std::string_view name, nlohmann::json& target) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong(name, *value, "a list");
  target = *value;
}

int Fields::choose(std::string_view name, std::span<const std::string_view> words) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return -1;
  for (std::size_t i = 0; value->is_string() && i < words.size(); ++i) {
    if (*value == words[i]) return static_cast<int>(i);
  }
  wrong(name, *value, fmt::format("one of {}", fmt::join(words, ", ")));
  return -1;
}

void Fields::object(std::string_view name, const std::function<void(Fields&)>& decode) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  Fields members(context_, *value, path_of(name));
  decode(members);
  members.finish();
}

void Fields::each_object(std::string_view name, const std::function<void(Fields&)>& decode) {
  const nlohmann::json* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong(name, *value, "a list");
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string path = element_path(path_of(name), i);
    if ((*value)[i].is_null()) {
      context_.error(path, "found nothing, expected an object");
      continue;
    }
    Fields members(context_, (*value)[i], path);
    decode(members);
    members.finish();
  }
}

std::vector<std::string> Fields::rest() const {
  std::vector<std::string> names;
  for (const auto& member : object_->items()) {
    if (!known_.contains(member.key())) names.push_back(member.key());
  }
  return names;
}

void Fields::finish() {
  if (!context_.strict) return;
  const std::vector<std::string_view> candidates(known_.begin(), known_.end());
  for (const std::string& name : rest()) {
    const std::string path = path_of(name);
    std::string place = place_of(name);
    if (place.empty() || place == path) {
      const std::string_view near = nearest_name(name, candidates);
      place = near.empty() ? "" : std::string(near);
    }
    context_.error(path, place.empty()
                             ? "is not a known field"
                             : fmt::format("is not a known field; did you mean {}?", place));
  }
}

}  // namespace tilewright::api
