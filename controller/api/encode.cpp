#include "controller/api/encode.h"

#include <charconv>
#include <type_traits>

#include "common/base/check.h"
#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "common/json/timestamp.h"
#include "controller/api/metadata_fields.h"
#include "controller/api/pytorchjob_fields.h"
#include "controller/api/status_fields.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// The value of a flag with the JSON type of the flag.
json flag_json(const std::string& name, const std::string& text) {
  const TrainingFlag* flag = find_training_flag(name);
  TW_CHECK(flag != nullptr, "there is no training flag --{}", name);
  switch (flag->type) {
    case FlagType::kBool:
      return text == "true";
    case FlagType::kInt: {
      std::int64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case FlagType::kFloat: {
      double number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case FlagType::kString:
    case FlagType::kChoice:
      break;
  }
  return text;
}

template <typename T>
json members_of(const T& object);

// Writes the fields of an object to JSON. Members that are not set are left out.
class Encoder : public FieldVisitor {
 public:
  template <typename T>
  void operator()(const Field& field, const T& member) {
    write(field, member);
  }

  template <typename Compute>
  void computed(const Field& field, const Compute& compute) {
    write(field, compute());
  }

  void training_flags(const std::map<std::string, std::string>& flags) {
    for (const auto& [name, text] : flags) object_[name] = flag_json(name, text);
  }

  void references(const Field& field, const Field& item, const std::vector<std::string>& names) {
    for (const std::string& name : names) object_[field.name].push_back({{item.name, name}});
  }

  void replica_specs(const Field& field, const std::optional<PyTorchReplicaSpec>& master,
                     const std::optional<PyTorchReplicaSpec>& worker) {
    json& types = object_[field.name] = json::object();
    if (master) types[kMasterType] = members_of(*master);
    if (worker) types[kWorkerType] = members_of(*worker);
  }

  void volume_source(const json& source) {
    if (!source.is_null()) object_.update(source);
  }

  json take() { return std::move(object_); }

 private:
  void write(const Field& field, const std::string& text) {
    if (!text.empty() || field.required || field.keep_empty) object_[field.name] = text;
  }
  void write(const Field& field, std::int64_t number) {
    if (number != 0 || !field.omit_zero) object_[field.name] = number;
  }
  void write(const Field& field, const ProcessCount& count) {
    object_[field.name] = count.automatic ? json("auto") : json(count.number);
  }
  void write(const Field& field, double number) { object_[field.name] = number; }
  void write(const Field& field, bool value) { object_[field.name] = value; }
  void write(const Field& field, WallTime time) { object_[field.name] = to_rfc3339(time); }
  void write(const Field& field, const Quantity& amount) { object_[field.name] = amount.text; }
  void write(const Field& field, const json& value) {
    if (!value.is_null()) object_[field.name] = value;
  }
  template <typename T>
  requires std::is_enum_v<T>
  void write(const Field& field, T value) { object_[field.name] = std::string(to_string(value)); }
  // A present member is written even if it is an empty string or an object without fields.
  template <typename T>
  void write(const Field& field, const std::optional<T>& value) {
    if (!value) return;
    if constexpr (std::is_same_v<T, std::string>) {
      object_[field.name] = *value;
    } else if constexpr (requires(Encoder visitor) { visit_fields(visitor, *value); }) {
      object_[field.name] = members_of(*value);
    } else {
      write(field, *value);
    }
  }
  void write(const Field& field, const std::map<std::string, Quantity>& amounts) {
    for (const auto& [name, amount] : amounts) object_[field.name][name] = amount.text;
  }
  template <typename T>
  void write(const Field& field, const std::map<std::string, T>& map) {
    for (const auto& entry : map) {
      const T& value = entry.second;
      json& member = object_[field.name][entry.first];
      if constexpr (requires(Encoder visitor) { visit_fields(visitor, value); }) {
        member = members_of(value);
      } else {
        member = value;
      }
    }
  }
  void write(const Field& field, const std::vector<std::string>& list) {
    if (!list.empty()) object_[field.name] = list;
  }
  template <typename T>
  void write(const Field& field, const std::vector<T>& list) {
    for (const T& item : list) object_[field.name].push_back(members_of(item));
  }
  template <typename T>
  requires std::is_class_v<T>
  void write(const Field& field, const T& object) {
    json members = members_of(object);
    if (!members.empty()) object_[field.name] = std::move(members);
  }

  json object_ = json::object();
};

template <typename T>
json members_of(const T& object) {
  Encoder encoder;
  visit_fields(encoder, object);
  return encoder.take();
}

}  // namespace

json to_json(const TrainJobStatus& status) { return members_of(status); }

json to_json(const TrainJob& job) {
  json object = {{"apiVersion", kApiVersion}, {"kind", kTrainJobKind}};
  object["metadata"] = members_of(job.metadata);
  object["spec"] = members_of(job.spec);
  if (!(job.status == TrainJobStatus())) object["status"] = to_json(job.status);
  return object;
}

json to_json(const PyTorchJobStatus& status) {
  json object = members_of(status);
  if (status.tilewright == TrainJobStatus()) object.erase("tilewright");
  return object;
}

json to_json(const PyTorchJob& job) {
  json object = {{"apiVersion", kPyTorchJobApiVersion}, {"kind", kPyTorchJobKind}};
  object["metadata"] = members_of(job.metadata);
  object["spec"] = members_of(job.spec);
  if (!(job.status == PyTorchJobStatus())) object["status"] = to_json(job.status);
  return object;
}

}  // namespace tilewright::api
