#include "controller/api/decode.h"

#include <fmt/format.h>

#include <limits>
#include <set>
#include <type_traits>

#include "common/base/printable.h"
#include "common/base/strings.h"
#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "common/contract/training_report.h"
#include "common/contract/virtual_shards.h"
#include "common/json/members.h"
#include "controller/api/metadata_fields.h"
#include "controller/api/object_reader.h"
#include "controller/api/pod_template_types.h"
#include "controller/api/pytorchjob_fields.h"
#include "controller/api/status_fields.h"
#include "controller/api/trainjob_fields.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// The value of a flag as on the command line; nullopt after reporting a wrong type or value.
std::optional<std::string> flag_value_string(const ObjectReader& reader, const TrainingFlag& flag,
                                             const json& value) {
  if (!accepts_json(flag, value)) {
    std::string expected = describe_expected(flag);
    if (value.is_boolean() && flag.type == FlagType::kChoice) {
      expected += " (YAML reads yes, no, on and off as booleans; put the value in quotes)";
    }
    expected += describe_quoted_value(flag, value);
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
    if constexpr (std::is_same_v<T, std::string>) {
      read_alias(field, member);
      if (field.alias != nullptr) aliases_[field.alias] = {field.name, &member};
    }
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
        reader_.context().error(reader_.path_of(flag.name),
                                "must not be set: the value follows from spec.worker.replicas, "
                                "spec.elasticPolicy.maxReplicas and spec.nprocPerNode");
      } else if (!flag.in_manifest()) {
        reader_.context().error(reader_.path_of(flag.name), reason_not_in_manifest(flag));
      } else if (auto text = flag_value_string(reader_, flag, *value)) {
        flags[std::string(flag.name)] = *text;
      }
    }
  }

  // Puts each flag of a command line where its field goes.
  void training_arguments(const Field& field, std::map<std::string, std::string>& flags) {
    std::vector<std::string> words;
    const std::size_t errors = reader_.context().errors.size();
    reader_.strings(field.name, words);
    if (reader_.context().errors.size() > errors) return;  // a word is missing
    std::set<std::string_view> seen;
    for (const FlagArgument& argument : split_command_line(words)) {
      const std::string path = element_path(reader_.path_of(field.name), argument.index);
      const Result<std::string> value = check_manifest_argument(argument);
      if (!value.ok()) {
        reader_.context().error(path, value.error().message);
        continue;
      }
      if (argument.flag->refused) continue;  // switched off
      const std::string flag(argument.flag->name);
      const auto alias = aliases_.find(flag);
      std::string& target = alias == aliases_.end() ? flags[flag] : *alias->second.member;
      const std::string name = alias == aliases_.end() ? flag : alias->second.field;
      // As on a command line, the last value wins.
      if (seen.insert(argument.flag->name).second &&
          (!target.empty() || reader_.peek(flag) != nullptr)) {
        reader_.context().error(path, fmt::format("--{}: must not be set: {} sets it",
                                                  argument.name, reader_.path_of(name)));
        continue;
      }
      target = *value;
      reader_.context().positions.set_line(reader_.path_of(name),
                                           reader_.context().positions.line_of(path));
    }
  }

  void references(const Field& field, const Field& item, std::vector<std::string>& names) {
    const json* list = reader_.take(field.name);
    if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
      return reader_.type_error(field.name, list->front(),
                                fmt::format("objects such as {{{}: {}}}", item.name,
                                            excerpt(list->front().get<std::string>())));
    }
    reader_.each_object(
        field.name, [&](ObjectReader& inner) { inner.string(item.name, names.emplace_back()); });
  }

  // Kubeflow accepts the names of the types in any case. An unknown type is always an error: its
  // pods would not run.
  void replica_specs(const Field& field, std::optional<PyTorchReplicaSpec>& master,
                     std::optional<PyTorchReplicaSpec>& worker) {
    reader_.object(field.name, [&](ObjectReader& types) {
      const auto read_type = [&](const char* type, std::optional<PyTorchReplicaSpec>& replica) {
        for (const std::string& name : types.remaining()) {
          if (!equal_ignoring_case(name, type)) continue;
          if (replica) {
            types.context().error(types.path_of(name),
                                  fmt::format("found {} twice, expected it once", type));
          }
          Decoder(types).read(Field{name.c_str()}, replica);
          if (!replica) continue;
          check_pod_template_types(types.context(), replica->pod_template,
                                   member_path(types.path_of(name), "template"));
        }
      };
      read_type(kMasterType, master);
      read_type(kWorkerType, worker);
      for (const std::string& name : types.remaining()) {
        types.context().error(types.path_of(name),
                              fmt::format("found an unknown replica type, expected {} or {}",
                                          kMasterType, kWorkerType));
        types.ignore(name);
      }
    });
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
    const Bounds& bounds = field.bounds;
    reader_.integer(field.name, member,
                    bounds.limited()
                        ? fmt::format("an integer from {} to {}", bounds.minimum, bounds.maximum)
                        : "an integer");
  }
  void read(const Field& field, std::optional<ProcessCount>& member) {
    const json* value = reader_.peek(field.name);
    if (value == nullptr || value->is_number_integer()) {
      std::optional<std::int64_t> number;
      reader_.integer(field.name, number);
      if (number) member = *number;
      return;
    }
    reader_.ignore(field.name);
    if (*value == "auto" || *value == "cpu") {
      member.emplace().automatic = true;
    } else {
      reader_.type_error(field.name, *value, "auto, cpu or an integer without quotes");
    }
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
  template <typename T>
  requires std::is_class_v<T>
  void read(const Field& field, std::map<std::string, T>& member) {
    reader_.object(field.name, [&](ObjectReader& inner) {
      for (const std::string& name : inner.remaining()) {
        Decoder(inner).read(Field{name.c_str()}, member[name]);
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

  // The value of an argument in normal form, or the Error with its sentence.
  static Result<std::string> check_manifest_argument(const FlagArgument& argument) {
    const auto refuse = [](std::string message) {
      return Error{ExitCode::kManifest, std::move(message)};
    };
    if (argument.name.empty()) {
      return refuse(fmt::format("found the argument {}, expected --flag=value",
                                quoted_excerpt(argument.value)));
    }
    if (argument.name == kConfigFlag) {
      return refuse(fmt::format("--{}: expected flags, not a file of flags", argument.name));
    }
    const TrainingFlag* flag = argument.flag;
    if (flag != nullptr && (flag->set_by_runtime || flag->secret)) {
      return refuse(fmt::format("--{}: {}", argument.name, reason_not_in_manifest(*flag)));
    }
    // As in the other fields, and as the CRD does, only full names.
    return check_argument(argument.abbreviated ? FlagArgument{.name = argument.name} : argument);
  }

  struct Alias {
    const char* field = nullptr;
    std::string* member = nullptr;
  };

  ObjectReader& reader_;
  std::map<std::string, Alias> aliases_;  // by the name of the flag
};

template <typename T>
void decode_member(ObjectReader& reader, const char* name, T& object) {
  reader.object(name, [&](ObjectReader& inner) {
    Decoder decoder(inner);
    visit_fields(decoder, object);
  });
}

// What to add if a TrainJob was expected and this is the version or kind of another job.
std::string hint_of_kind(const json& found) {
  if (!found.is_string()) return "";
  const auto& text = found.get_ref<const std::string&>();
  if (text.starts_with("trainer.kubeflow.org/"))
    return ": this is a TrainJob of Kubeflow Trainer v2";
  return text == kPyTorchJobKind ? "; tilewright convert makes a TrainJob of a PyTorchJob" : "";
}

void decode_kind(ObjectReader& reader, const char* api_version, const char* kind) {
  const std::pair<const char*, const char*> expected[] = {{"apiVersion", api_version},
                                                          {"kind", kind}};
  for (const auto& [name, value] : expected) {
    const json* found = reader.take(name);
    if (found == nullptr) {
      reader.context().error(name, fmt::format("found nothing, expected {}", value));
    } else if (*found != value) {
      reader.type_error(name, *found, value + hint_of_kind(*found));
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
  constexpr std::int64_t kMaxCount = RestartCounts::kMax;
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
  const auto is_size = [](std::int64_t size, std::int64_t most) {
    return size > 0 && size <= most;
  };
  // The processes of a PyTorchJob that does not train natively may exceed kMaxVirtualShards.
  constexpr std::int64_t kMostProcesses = kMaxPods * kMaxProcessesPerNode;
  if (!is_size(status.nominal_workers, kMostProcesses)) status.nominal_workers = 0;
  const bool is_power_of_two = (status.virtual_shards & (status.virtual_shards - 1)) == 0;
  if (!is_size(status.virtual_shards, kMaxVirtualShards) || !is_power_of_two) {
    status.virtual_shards = 0;
  }
  if (status.failures.size() > kFailureHistoryLength) {
    status.failures.erase(
        status.failures.begin(),
        status.failures.end() - static_cast<std::ptrdiff_t>(kFailureHistoryLength));
  }
  for (FailureRecord& failure : status.failures) {
    count(failure.index);
    bound(failure.rank, -1, kMaxCount);
    bound(failure.step, -1, kLargest);
    using ExitCodes = std::numeric_limits<std::int32_t>;  // of a container
    if (failure.exit_code) bound(*failure.exit_code, ExitCodes::min(), ExitCodes::max());
    if (failure.signal) bound(*failure.signal, 0, kMaxCount);
  }
  if (status.failing_workers.size() > kMaxPods) status.failing_workers.resize(kMaxPods);
  for (FailingWorker& failing : status.failing_workers) {
    count(failing.index, failing.failures);
    if (failing.out_of_memory_step) bound(*failing.out_of_memory_step, -1, kLargest);
    bound(failing.waits_generation, 0, kLargest);
  }
  if (!status.progress) return;
  bound(status.progress->step, 0, kLargest);
  bound(status.progress->total_steps, 0, kLargest);
  if (status.progress->eta_seconds) bound(*status.progress->eta_seconds, 0, kLargest);
  std::vector<SlowWorker>& slow_workers = status.progress->slow_workers;
  if (slow_workers.size() > training_report::kMaxSlowWorkers) {
    slow_workers.resize(training_report::kMaxSlowWorkers);
  }
  for (SlowWorker& slow : slow_workers) {
    for (std::int64_t* number : {&slow.index, &slow.process, &slow.shards}) count(*number);
  }
}

void bound_status(PyTorchJobStatus& status) {
  bound_status(status.tilewright);
  for (auto& [type, replica] : status.replica_statuses) {
    for (std::int64_t* count : {&replica.active, &replica.succeeded, &replica.failed}) {
      *count = std::clamp<std::int64_t>(*count, 0, INT32_MAX);
    }
  }
}

template <typename Job>
constexpr bool kIsPyTorchJob = std::is_same_v<Job, PyTorchJob>;

template <typename Job>
void decode_root(const DecodeContext& context, const json& object, Job& job) {
  ObjectReader reader(context, object, "");
  decode_kind(reader, kIsPyTorchJob<Job> ? kPyTorchJobApiVersion : kApiVersion,
              kIsPyTorchJob<Job> ? kPyTorchJobKind : kTrainJobKind);
  // The fields of another kind would only add errors that do not matter.
  if (!context.errors.empty()) return;
  decode_member(reader, "metadata", job.metadata);
  if (check_spec_size(context, object)) {
    decode_member(reader, "spec", job.spec);
    if constexpr (!kIsPyTorchJob<Job>) {
      check_pod_template_types(context, job.spec.worker.pod_template, "spec.worker.podTemplate");
    }
  } else {
    reader.ignore("spec");
  }
  decode_member(reader, "status", job.status);
  bound_status(job.status);
  reader.finish();
}

template <typename Job>
Decoded<Job> decode(Document document) {
  Decoded<Job> decoded;
  decoded.positions = std::move(document.positions);
  decoded.errors = std::move(document.errors);
  if (decoded.errors.empty()) {
    decode_root({decoded.positions, decoded.errors, FieldValidation::kStrict, kIsPyTorchJob<Job>},
                document.tree, decoded.job);
  }
  return decoded;
}

template <typename Job>
Decoded<Job> decode(const json& object, FieldValidation validation) {
  Decoded<Job> decoded;
  decode_root({decoded.positions, decoded.errors, validation, kIsPyTorchJob<Job>}, object,
              decoded.job);
  return decoded;
}

}  // namespace

DecodeResult decode_document(Document document) { return decode<TrainJob>(std::move(document)); }

DecodedPyTorchJob decode_pytorchjob_document(Document document) {
  return decode<PyTorchJob>(std::move(document));
}

DecodeResult decode_object(const json& object, FieldValidation validation) {
  return decode<TrainJob>(object, validation);
}

DecodedPyTorchJob decode_pytorchjob(const json& object, FieldValidation validation) {
  return decode<PyTorchJob>(object, validation);
}

}  // namespace tilewright::api
