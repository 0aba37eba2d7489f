#include "controller/api/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "common/contract/virtual_shards.h"
#include "common/json/members.h"
#include "controller/api/metadata_fields.h"
#include "controller/api/object_reader.h"
#include "controller/api/pod_template_types.h"
#include "controller/api/status_fields.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// The value of a flag as on the command line; nullopt after reporting a wrong type or value.
std::optional<std::string> flag_value_string(const ObjectReader& reader, const TrainingFlag& flag,
                                             const json& value) {
  const bool fits = flag.type == FlagType::kBool    ? value.is_boolean()
                    : flag.type == FlagType::kInt   ? value.is_number_integer()
                    : flag.type == FlagType::kFloat ? value.is_number()
                                                    : value.is_string();
  if (!fits) {
    std::string expected = describe_expected(flag);
    if (value.is_boolean() && flag.type == FlagType::kChoice) {
      expected += " (YAML reads yes, no, on and off as booleans; put the value in quotes)";
    }
    if (value.is_string()) {
      expected += describe_quoted_value(flag, value.get_ref<const std::string&>(), true);
    }
    reader.type_error(flag.name, value, expected);
    return std::nullopt;
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const Result<std::string> normal = normalize_flag_value(flag, text);
  if (normal.ok()) return *normal;
  reader.context().error(reader.path_of(flag.name), normal.error().message);
  return std::nullopt;
}

// Reads the fields of an object from JSON. A field that is absent or null leaves the member
// unchanged.
class Decoder : public FieldVisitor {
 public:
  explicit Decoder(ObjectReader& reader) : reader_(reader) {}

  template <typename T>
  void operator()(const Field& field, T& member) {
    read(field, member);
    if constexpr (std::is_same_v<T, std::string>) read_alias(field, member);
  }

  void ignored(const char* name) { reader_.ignore(name); }

  template <typename Compute>
  void computed(const Field& field, const Compute&) {
    reader_.ignore(field.name);
  }

  void training_flags(std::map<std::string, std::string>& flags) {
    for (const TrainingFlag& flag : tilewright::training_flags()) {
      if (reader_.is_known(flag.name)) continue;  // a field with a member of its own
      const json* value = reader_.take(flag.name);
      if (value == nullptr) continue;
      if (flag.set_by_runtime) {
        reader_.type_error(flag.name, *value,
                           "nothing: the value follows from spec.worker.replicas, "
                           "spec.elasticPolicy.maxReplicas and spec.nprocPerNode");
      } else if (!flag.in_manifest()) {
        reader_.type_error(flag.name, *value, "nothing" + reason_not_in_manifest(flag));
      } else if (auto text = flag_value_string(reader_, flag, *value)) {
        flags[std::string(flag.name)] = *text;
      }
    }
  }

  // Accepts [{name: a}], as in a pod, and plain names.
  void references(const Field& field, const Field& item, std::vector<std::string>& names) {
    const json* list = reader_.take(field.name);
    if (list != nullptr && list->is_array() && !list->empty() && list->front().is_object()) {
      reader_.each_object(
          field.name, [&](ObjectReader& inner) { inner.string(item.name, names.emplace_back()); });
    } else {
      reader_.strings(field.name, names);
    }
  }

  // Treats each unknown field that holds an object as a volume source, so that validate() suggests
  // the volume source nearest to a misspelt name.
  void volume_source(json& source) {
    source = nullptr;
    json sources = json::object();
    const auto keep = [&](const std::string& name) {
      json value;
      reader_.raw_object(name, value);
      if (value.is_object()) sources[name] = value;
    };
    keep("persistentVolumeClaim");
    keep("emptyDir");
    for (const std::string& name : reader_.remaining()) {
      const json* value = reader_.peek(name);
      if (value != nullptr && value->is_object()) keep(name);
    }
    if (!sources.empty()) source = sources;
  }

 private:
  void read(const Field& field, std::string& member) { reader_.string(field.name, member); }
  void read(const Field& field, std::optional<std::string>& member) {
    reader_.string(field.name, member);
  }
  void read(const Field& field, std::optional<bool>& member) {
    reader_.boolean(field.name, member);
  }
  void read(const Field& field, std::int64_t& member) { reader_.integer(field.name, member); }
  void read(const Field& field, std::optional<std::int64_t>& member) {
    reader_.integer(field.name, member);
  }
  void read(const Field& field, double& member) { reader_.number(field.name, member); }
  void read(const Field& field, std::optional<double>& member) {
    reader_.number(field.name, member);
  }
  void read(const Field& field, Timestamp& member) { reader_.timestamp(field.name, member); }
  void read(const Field& field, std::optional<Quantity>& member) {
    reader_.quantity(field.name, member);
  }
  void read(const Field& field, std::vector<std::string>& member) {
    reader_.strings(field.name, member);
  }
  void read(const Field& field, std::map<std::string, std::string>& member) {
    reader_.string_map(field.name, member);
  }
  void read(const Field& field, std::map<std::string, double>& member) {
    reader_.object(field.name, [&](ObjectReader& inner) {
      for (const std::string& name : inner.remaining()) inner.number(name, member[name]);
    });
  }
  void read(const Field& field, std::map<std::string, Quantity>& member) {
    reader_.object(field.name, [&](ObjectReader& inner) {
      for (const std::string& name : inner.remaining()) {
        // Fields of a container in Kubernetes. They stay unknown, so that finish() suggests which
        // fields to use.
        if (name == "limits" || name == "requests") continue;
        std::optional<Quantity> amount;
        inner.quantity(name, amount);
        if (amount) member[name] = *amount;
      }
    });
  }
  void read(const Field& field, json& member) {
    field.max_items > 0 ? reader_.raw_list(field.name, member)
                        : reader_.raw_object(field.name, member);
  }

  template <typename T>
  requires std::is_enum_v<T>
  void read(const Field& field, std::optional<T>& member) {
    const int index = reader_.choice(field.name, enum_names(T()));
    if (index >= 0) member = static_cast<T>(index);
  }
  template <typename T>
  requires std::is_enum_v<T>
  void read(const Field& field, T& member) {
    std::optional<T> value;
    read(field, value);
    if (value) member = *value;
  }

  template <typename T>
  requires std::is_class_v<T>
  void read(const Field& field, T& member) {
    reader_.object(field.name, [&](ObjectReader& inner) { read_members(inner, member); });
  }
  template <typename T>
  requires std::is_class_v<T>
  void read(const Field& field, std::optional<T>& member) {
    reader_.object(field.name, [&](ObjectReader& inner) { read_members(inner, member.emplace()); });
  }
  template <typename T>
  void read(const Field& field, std::vector<T>& member) {
    reader_.each_object(field.name,
                        [&](ObjectReader& inner) { read_members(inner, member.emplace_back()); });
  }

  template <typename T>
  static void read_members(ObjectReader& reader, T& object) {
    Decoder decoder(reader);
    visit_fields(decoder, object);
  }

  void read_alias(const Field& field, std::string& member) {
    if (field.alias == nullptr) return;
    std::string value;
    reader_.string(field.alias, value);
    if (value.empty() || value == member) return;
    if (member.empty()) {
      member = value;
    } else {
      reader_.context().error(
          reader_.path_of(field.alias),
          fmt::format("found {}, expected {}, the value of {}, or only one of the two fields",
                      value, member, field.name));
    }
  }

  ObjectReader& reader_;
};

template <typename T>
void decode_member(ObjectReader& reader, const char* name, T& object) {
  reader.object(name, [&](ObjectReader& inner) {
    Decoder decoder(inner);
    visit_fields(decoder, object);
  });
}

void decode_kind(ObjectReader& reader) {
  const std::pair<const char*, const char*> expected[] = {{"apiVersion", kApiVersion},
                                                          {"kind", kTrainJobKind}};
  for (const auto& [name, value] : expected) {
    const json* found = reader.take(name);
    if (found == nullptr) {
      reader.context().error(name, fmt::format("found nothing, expected {}", value));
    } else if (*found != value) {
      reader.type_error(name, *found, value);
    }
  }
}

// Whether the spec of an object of the API server is within the limits of a manifest. Each message
// about it repeats a path that the tenant has chosen.
bool check_spec_size(const DecodeContext& context, const json& object) {
  const TreeLimits::Refusal exceeded = TreeLimits().add_tree(member(object, "spec"), 1, 0);
  if (exceeded) context.error("spec", *exceeded);
  return !exceeded;
}

// A status that someone else has written must not overflow the arithmetic of the policies.
void bound_status(TrainJobStatus& status) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 47;  // above any step, and kMaxStoredEpoch
  constexpr std::int64_t kMaxCount = std::int64_t{1} << 30;
  const auto bound = [](std::int64_t& number, std::int64_t least, std::int64_t most) {
    number = std::clamp(number, least, most);
  };
  const auto count = [&](auto&... numbers) { (bound(numbers, 0, kMaxCount), ...); };
  ReplicaCounts& replicas = status.replicas;
  count(replicas.desired, replicas.active, replicas.ready, replicas.succeeded, replicas.failed);
  RestartCounts& restarts = status.restarts;
  count(restarts.program, restarts.infrastructure, restarts.out_of_memory);
  bound(status.rendezvous_epoch, 0, kLargest);
  // Sizes that no job can have count as not set, so that they are set again.
  const auto is_size = [](std::int64_t size) { return size > 0 && size <= kMaxVirtualShards; };
  if (!is_size(status.nominal_workers)) status.nominal_workers = 0;
  const bool is_power_of_two = (status.virtual_shards & (status.virtual_shards - 1)) == 0;
  if (!is_size(status.virtual_shards) || !is_power_of_two) status.virtual_shards = 0;
  if (status.failures.size() > kFailureHistoryLength) {
    status.failures.erase(
        status.failures.begin(),
        status.failures.end() - static_cast<std::ptrdiff_t>(kFailureHistoryLength));
  }
  for (FailureRecord& failure : status.failures) {
    count(failure.index);
    bound(failure.rank, -1, kMaxCount);
    bound(failure.step, -1, kLargest);
    if (failure.exit_code) bound(*failure.exit_code, -kMaxCount, kMaxCount);
    if (failure.signal) bound(*failure.signal, 0, kMaxCount);
  }
  if (!status.progress) return;
  bound(status.progress->step, 0, kLargest);
  bound(status.progress->total_steps, 0, kLargest);
  if (status.progress->eta_seconds) bound(*status.progress->eta_seconds, 0, kLargest);
}

void decode_root(const DecodeContext& context, const json& object, TrainJob& job) {
  ObjectReader reader(context, object, "");
  decode_kind(reader);
  // The fields of another kind would only add errors that do not matter.
  if (!context.errors.empty()) return;
  decode_member(reader, "metadata", job.metadata);
  if (check_spec_size(context, object)) {
    decode_member(reader, "spec", job.spec);
    check_pod_template_types(context, job.spec.worker.pod_template, "spec.worker.podTemplate");
  } else {
    reader.ignore("spec");
  }
  decode_member(reader, "status", job.status);
  bound_status(job.status);
  reader.finish();
}

}  // namespace

DecodeResult decode_manifest(std::string_view yaml) {
  Document document = read_yaml(yaml);
  DecodeResult decoded;
  decoded.positions = std::move(document.positions);
  decoded.errors = std::move(document.errors);
  if (decoded.errors.empty()) {
    decode_root({decoded.positions, decoded.errors, true}, document.tree, decoded.job);
  }
  return decoded;
}

DecodeResult decode_object(const json& object, bool strict) {
  DecodeResult decoded;
  decode_root({decoded.positions, decoded.errors, strict}, object, decoded.job);
  return decoded;
}

}  // namespace tilewright::api
