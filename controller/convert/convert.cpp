#include "controller/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/base/strings.h"
#include "common/base/version.h"
#include "common/contract/labels.h"
#include "common/contract/training_flags.h"
#include "common/json/members.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/api/trainer_path.h"
#include "controller/api/validate.h"
#include "controller/convert/commented_yaml.h"
#include "controller/convert/container.h"
#include "controller/convert/variables.h"

namespace tilewright::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kReplicaSpecs = "spec.pytorchReplicaSpecs";
constexpr const char* kPodTemplate = "spec.worker.podTemplate";
constexpr const char* kSharedMemoryPath = "/dev/shm";

// The value of a scalar for a message: long ones are cut.
std::string shown(const json& value) {
  constexpr std::size_t kMaxBytes = 60;
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  std::ranges::replace(text, '\n', ' ');
  if (text.size() <= kMaxBytes) return text;
  return text.substr(0, utf8_prefix_length(text, kMaxBytes)) + "...";
}

// The file name of an image without registry and tag: tilewright-worker.
std::string image_name(std::string image) {
  image = image.substr(0, image.find('@'));
  image = image.substr(image.rfind('/') + 1);
  return image.substr(0, image.find(':'));
}

// The value of a flag as a manifest has it.
ordered_json flag_value(const TrainingSettings& settings, const TrainingFlag& flag) {
  return std::visit(
      [&](auto pointer) -> ordered_json {
        if constexpr (std::is_same_v<decltype(pointer), std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<decltype(pointer), std::string TrainingSettings::*> ||
                             std::is_same_v<decltype(pointer), bool TrainingSettings::*>) {
          return settings.*pointer;
        } else {
          return ordered_json::parse(fmt::format("{}", settings.*pointer));
        }
      },
      flag.member);
}

// "output_$(date +%F)" with `replacement` in place of each $(date ...).
std::string replace_dates(std::string text, std::string_view replacement) {
  for (std::size_t at = text.find("$(date"); at != std::string::npos;
       at = text.find("$(date", at + replacement.size())) {
    const std::size_t end = text.find(')', at);
    if (end == std::string::npos) break;
    text.replace(at, end + 1 - at, replacement);
  }
  return text;
}

// Splits spec.volumes[0].name, as member_path() and element_path() make it, into names and indices.
std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  std::string part;
  const auto flush = [&] {
    if (!part.empty()) parts.push_back(std::move(part));
    part.clear();
  };
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') {
      flush();
    } else if (path.substr(i).starts_with("[\"")) {
      flush();
      const std::size_t end = std::min(path.find("\"]", i), path.size());
      parts.emplace_back(path.substr(i + 2, end - i - 2));
      i = end + 1;
    } else if (path[i] == '[') {
      flush();
    } else if (path[i] != ']') {
      part += path[i];
    }
  }
  flush();
  return parts;
}

// Removes the field at `path`, or the nearest enclosing one that exists; returns its name and value.
std::pair<std::string, json> remove_field(ordered_json& tree, std::string_view path) {
  ordered_json* parent = nullptr;
  ordered_json* value = &tree;
  std::string name;
  for (const std::string& part : path_parts(path)) {
    ordered_json* inner = nullptr;
    if (value->is_object()) {
      const auto found = value->find(part);
      if (found != value->end()) inner = &*found;
    } else if (value->is_array() && part.find_first_not_of("0123456789") == std::string::npos) {
      const std::size_t index = std::stoul(part);
      if (index < value->size()) inner = &(*value)[index];
    }
    if (inner == nullptr) break;
    parent = value;
    value = inner;
    name = part;
  }
  TW_CHECK(parent != nullptr, "no field at {}", path);
  const json removed(*value);
  if (parent->is_object()) {
    parent->erase(name);
  } else {
    parent->erase(std::stoul(name));
  }
  return {name, removed};
}

class Converter {
 public:
  Converter(const api::PyTorchJob& job, const Positions& positions)
      : written_(job), job_(job), positions_(positions) {
    api::apply_defaults(job_);
    worker_type_ = job_.spec.worker ? api::kWorkerType : api::kMasterType;
    replica_path_ = member_path(kReplicaSpecs, worker_type_);
  }

  Conversion run() {
    container_.emplace(replica(), replica_path_);
    Result<Training> training = container_->training();
    if (!training.ok()) {
      error(container_->path() + ".command", training.error().message);
      return std::move(result_);
    }
    training_ = std::move(*training);
    // In the order in which the fields of the manifest are written.
    tree_["apiVersion"] = kApiVersion;
    tree_["kind"] = kTrainJobKind;
    convert_metadata();
    convert_process_count();
    convert_elastic_policy();
    convert_run_policy();
    convert_trainer();
    convert_worker();
    convert_pod();
    convert_master();
    if (!volumes_.empty()) tree_["spec"]["volumes"] = volumes_;
    if (result_.ok()) validate();
    if (result_.ok()) result_.tree = std::move(tree_);
    std::ranges::stable_sort(result_.notes, {}, [](const Note& note) { return note.at.line; });
    return std::move(result_);
  }

 private:
  const api::PyTorchReplicaSpec& replica() const {
    return worker_type_ == api::kWorkerType ? *job_.spec.worker : *job_.spec.master;
  }
  const json& pod() const { return member(replica().pod_template, "spec"); }
  std::string pod_path(std::string_view field) const {
    return member_path(replica_path_ + ".template.spec", field);
  }
  ordered_json& trainer() { return tree_["spec"]["trainer"]; }
  ordered_json& worker() { return tree_["spec"]["worker"]; }

  void error(const std::string& path, std::string message) {
    add_error(result_.errors, {path, positions_.line_of(path), std::move(message)});
  }
  void note(const std::string& path, const std::string& place, std::string message,
            bool trainjob = false) {
    result_.notes.push_back(
        {{path, positions_.line_of(path), std::move(message)}, place, trainjob});
  }
  // The field of the TrainJob was made of the field of the PyTorchJob.
  void made_of(const std::string& place, const std::string& path) { origins_[place] = path; }

  void convert_metadata();
  void convert_process_count();
  void convert_elastic_policy();
  void convert_run_policy();
  void convert_trainer();
  void convert_flag(const TrainingFlag& flag);
  void convert_worker();
  void convert_image();
  void convert_resources();
  void convert_env();
  void convert_mounts();
  void convert_pod();
  void convert_security();
  void convert_other_containers();
  void convert_master();
  void validate();

  std::string volume_path(const std::string& path, const std::string& flag);
  std::string resolve(const std::string& path) const;
  bool use_volume(const std::string& name);
  const json* find_pod_volume(const std::string& name, std::string& path) const;
  void add_pod_volume(const std::string& name);

  const api::PyTorchJob& written_;
  api::PyTorchJob job_;  // with defaults
  const Positions& positions_;
  std::string worker_type_;
  std::string replica_path_;
  std::optional<Container> container_;
  Training training_;
  ordered_json tree_;
  ordered_json volumes_ = ordered_json::array();
  ordered_json overlay_;         // spec of the podTemplate
  ordered_json overlay_worker_;  // its container of the worker
  std::map<std::string, std::string> origins_;
  Conversion result_;
};

void Converter::convert_metadata() {
  const api::ObjectMeta& metadata = job_.metadata;
  ordered_json& target = tree_["metadata"];
  for (const auto& [name, text] :
       {std::pair{"name", &metadata.name}, std::pair{"generateName", &metadata.generate_name},
        std::pair{"namespace", &metadata.namespace_name}}) {
    if (text->empty()) continue;
    target[name] = *text;
    made_of(fmt::format("metadata.{}", name), fmt::format("metadata.{}", name));
  }
  if (!metadata.labels.empty()) target["labels"] = metadata.labels;
  for (const auto& [name, value] : metadata.annotations) {
    // What kubectl wrote describes the PyTorchJob.
    if (name.starts_with("kubectl.kubernetes.io/")) continue;
    target["annotations"][name] = value;
  }
}

void Converter::convert_process_count() {
  const std::optional<launch::TorchrunOptions>& torchrun = training_.command.torchrun;
  std::string path = "spec.nprocPerNode";
  std::string count = job_.spec.nproc_per_node.value_or("");
  if (job_.spec.elastic_policy && job_.spec.elastic_policy->nproc_per_node) {
    path = "spec.elasticPolicy.nProcPerNode";
    count = std::to_string(*job_.spec.elastic_policy->nproc_per_node);
  }
  if (torchrun && torchrun->nproc_per_node) {
    path = container_->path_of_flag("nproc_per_node");
    count = *torchrun->nproc_per_node;
  }
  if (!torchrun) count = "1";  // python starts one process
  made_of("spec.nprocPerNode", path);
  if (count == "gpu" || count == "xpu") {
    return error(path,
                 fmt::format("found {}, expected auto, cpu or an integer: Tilewright computes "
                             "on CPUs only",
                             count));
  }
  if (count == "auto" || count == "cpu") {
    tree_["spec"]["nprocPerNode"] = 1;
    note(path, "spec.nprocPerNode",
         fmt::format("nprocPerNode {}: one process for each NUMA node of a pod; a TrainJob has a "
                     "fixed number, so write the number of NUMA nodes if a pod has several",
                     count),
         true);
    return;
  }
  if (count.empty() || count.size() > 4 ||
      count.find_first_not_of("0123456789") != std::string::npos) {
    return error(path, fmt::format("found {}, expected auto, cpu or an integer", shown(count)));
  }
  tree_["spec"]["nprocPerNode"] = std::stoi(count);
}

void Converter::convert_elastic_policy() {
  constexpr const char* kPath = "spec.elasticPolicy";
  constexpr const char* kRendezvous = "the operator is the rendezvous";
  ordered_json target = ordered_json::object();
  const std::optional<launch::TorchrunOptions>& torchrun = training_.command.torchrun;
  if (written_.spec.elastic_policy) {
    const api::PyTorchElasticPolicy& elastic = *written_.spec.elastic_policy;
    const auto drop = [&](const char* name, const json& value, std::string_view why) {
      note(member_path(kPath, name), member_path(kPath, name),
           fmt::format("{} {}: {}", name, shown(value), why));
    };
    if (elastic.rdzv_backend.value_or("c10d") == "c10d") {
      if (elastic.rdzv_backend) target["rdzvBackend"] = "c10d";
    } else {
      drop("rdzvBackend", *elastic.rdzv_backend, kRendezvous);
    }
    if (job_.spec.elastic_policy->min_replicas) {
      target["minReplicas"] = *job_.spec.elastic_policy->min_replicas;
      target["maxReplicas"] = *job_.spec.elastic_policy->max_replicas;
    }
    if (elastic.max_restarts) target["maxRestarts"] = *elastic.max_restarts;
    if (elastic.rdzv_port) drop("rdzvPort", *elastic.rdzv_port, kRendezvous);
    if (elastic.rdzv_host) drop("rdzvHost", *elastic.rdzv_host, kRendezvous);
    if (elastic.rdzv_id) drop("rdzvId", *elastic.rdzv_id, kRendezvous);
    for (std::size_t i = 0; i < elastic.rdzv_conf.size(); ++i) {
      note(element_path("spec.elasticPolicy.rdzvConf", i), "spec.elasticPolicy.rdzvConf",
           fmt::format("rdzvConf {}: {}", elastic.rdzv_conf[i].key, kRendezvous));
    }
    if (elastic.standalone.value_or(false)) drop("standalone", "true", kRendezvous);
    if (!elastic.metrics.is_null()) {
      note(
          "spec.elasticPolicy.metrics", "spec.elasticPolicy.metrics",
          fmt::format("metrics: no HorizontalPodAutoscaler is created; one whose scaleTargetRef is "
                      "the {}.{} does the same",
                      kTrainJobPlural, kApiGroup),
          true);
    }
  }
  if (torchrun) {
    if (torchrun->max_restarts) {
      const std::string& text = *torchrun->max_restarts;
      if (text.empty() || text.size() > 6 ||
          text.find_first_not_of("0123456789") != std::string::npos) {
        error(container_->path_of_flag("max_restarts"),
              fmt::format("--max_restarts: found {}, expected an integer", shown(text)));
      } else {
        target["maxRestarts"] = std::stoi(text);
      }
    }
    const std::pair<const char*, const std::optional<std::string>*> unused[] = {
        {"nnodes", &torchrun->nnodes},
        {"rdzv_backend", &torchrun->rdzv_backend},
        {"rdzv_endpoint", &torchrun->rdzv_endpoint},
        {"rdzv_id", &torchrun->rdzv_id},
        {"rdzv_conf", &torchrun->rdzv_conf},
        {"monitor_interval", &torchrun->monitor_interval},
        {"node_rank", &torchrun->node_rank},
        {"master_addr", &torchrun->master_addr},
        {"master_port", &torchrun->master_port},
        {"local_addr", &torchrun->local_addr},
        {"log_dir", &torchrun->log_dir},
        {"redirects", &torchrun->redirects},
        {"tee", &torchrun->tee},
        {"start_method", &torchrun->start_method},
        {"role", &torchrun->role}};
    for (const auto& [name, value] : unused) {
      if (!*value) continue;
      const bool log = std::string_view(name) == "log_dir" ||
                       std::string_view(name) == "redirects" || std::string_view(name) == "tee";
      const char* why = log ? "each process writes to the log of its pod"
                        : std::string_view(name) == "nnodes"
                            ? "minReplicas and maxReplicas say it"
                            : "the operator starts the processes, not torchrun";
      note(container_->path_of_flag(name), kPath, fmt::format("--{} {}: {}", name, **value, why));
    }
    if (torchrun->standalone) {
      note(container_->path_of_flag("standalone"), kPath,
           fmt::format("--standalone: {}", kRendezvous));
    }
  }
  if (!target.empty()) tree_["spec"]["elasticPolicy"] = std::move(target);
}

void Converter::convert_run_policy() {
  const api::PyTorchRunPolicy& policy = written_.spec.run_policy;
  ordered_json target = ordered_json::object();
  if (policy.suspend) target["suspend"] = *policy.suspend;
  if (policy.ttl_seconds_after_finished) {
    target["ttlSecondsAfterFinished"] = *policy.ttl_seconds_after_finished;
  }
  if (policy.active_deadline_seconds) {
    target["activeDeadlineSeconds"] = *policy.active_deadline_seconds;
  }
  if (policy.backoff_limit) {
    const ordered_json elastic = tree_["spec"].value("elasticPolicy", ordered_json::object());
    if (!elastic.contains("maxRestarts") || elastic["maxRestarts"] == *policy.backoff_limit) {
      target["backoffLimit"] = *policy.backoff_limit;
    } else {
      note("spec.runPolicy.backoffLimit", "spec.runPolicy.backoffLimit",
           fmt::format("backoffLimit {}: elasticPolicy.maxRestarts limits the restarts",
                       *policy.backoff_limit));
    }
  }
  if (policy.clean_pod_policy) {
    target["cleanPodPolicy"] = std::string(api::to_string(*policy.clean_pod_policy));
  }
  if (policy.scheduling_policy) {
    const api::SchedulingPolicy& scheduling = policy.scheduling_policy->common;
    ordered_json& gang = target["schedulingPolicy"] = ordered_json::object();
    if (scheduling.min_available) gang["minAvailable"] = *scheduling.min_available;
    if (scheduling.queue) gang["queue"] = *scheduling.queue;
    if (scheduling.priority_class) gang["priorityClass"] = *scheduling.priority_class;
    if (scheduling.schedule_timeout_seconds) {
      gang["scheduleTimeoutSeconds"] = *scheduling.schedule_timeout_seconds;
    }
    if (!policy.scheduling_policy->min_resources.is_null()) {
      const std::string path = "spec.runPolicy.schedulingPolicy.minResources";
      note(path, path, "minResources: the PodGroup of a TrainJob has minAvailable only", true);
    }
  }
  if (policy.managed_by) {
    note("spec.runPolicy.managedBy", "spec.runPolicy.managedBy",
         fmt::format("managedBy {}: Tilewright's operator manages every TrainJob",
                     shown(*policy.managed_by)),
         true);
  }
  if (!target.empty()) tree_["spec"]["runPolicy"] = std::move(target);
}

void Converter::convert_trainer() {
  tree_["spec"]["trainer"] = ordered_json::object();
  constexpr std::array<std::string_view, 8> kFirst = {
      "model_name_or_path", "task_name",  "dataset_name",    "dataset_config_name",
      "data_dir",           "train_file", "validation_file", "test_file"};
  for (const std::string_view name : kFirst) convert_flag(*find_training_flag(name));
  convert_flag(*find_training_flag("output_dir"));
  for (const TrainingFlag& flag : training_flags()) {
    if (std::ranges::find(kFirst, flag.name) == kFirst.end() && flag.name != "output_dir") {
      convert_flag(flag);
    }
  }
  for (const std::string& skipped : training_.command.skipped) {
    note(container_->path_of_flag(""), "spec.trainer",
         fmt::format("{}: nothing is installed", shown(skipped)));
  }
}

void Converter::convert_flag(const TrainingFlag& flag) {
  const std::string name(flag.name);
  if (!training_.arguments.is_set(name)) return;
  const std::string path = container_->path_of_flag(name);
  // The fields that a manifest has for these flags.
  static const std::map<std::string, std::string, std::less<>> kFields = {
      {"model_name_or_path", "model"},
      {"task_name", "task"},
      {"data_dir", "data"},
      {"output_dir", "output"}};
  const auto renamed = kFields.find(name);
  const std::string field = renamed == kFields.end() ? name : renamed->second;
  const std::string place = member_path("spec.trainer", field);
  made_of(place, path);
  if (flag.of_launcher) {
    return note(path, place, fmt::format("--{}: the workers use Tilewright's own transport", name));
  }
  if (!flag.works()) {
    return note(path, place, fmt::format("--{}: {}", name, flag.help));
  }
  if (flag.set_by_runtime) {
    return note(path, place,
                fmt::format("--{}: the operator sets it from the number of workers", name));
  }
  if (flag.secret) {
    return note(path, place,
                fmt::format("--{}: not in a manifest, which many can read; set HF_TOKEN in "
                            "worker.env from a Secret",
                            name),
                true);
  }
  ordered_json value = flag_value(training_.arguments.settings(), flag);
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    const std::string job_name = "$(TILEWRIGHT_JOB_NAME)";
    const std::string without_date = replace_dates(text, job_name);
    if (without_date != text) {
      note(path, place,
           fmt::format("--{} {}: the time of the start is not known before; the name of the job "
                       "takes its place, so use metadata.generateName to get another directory in "
                       "each run",
                       name, text),
           true);
      text = without_date;
    }
    const bool hub = flag.hub_name || name == "model_name_or_path";
    const bool directory = flag.volume_path || name == "output_dir" || name == "data_dir" || hub;
    const bool is_path = text.starts_with('/') || text.starts_with("./") ||
                         text.starts_with("../") || text.starts_with("~");
    if (directory && !text.empty() && (is_path || !hub)) text = volume_path(text, name);
    value = text;
  }
  trainer()[field] = std::move(value);
}

// The absolute path of a path on the command line.
std::string Converter::resolve(const std::string& path) const {
  fs::path directory = training_.command.directory;
  if (!directory.is_absolute()) {
    directory = fs::path(string_member(container_->json(), "workingDir")) / directory;
  }
  return (directory / path).lexically_normal().string();
}

// VOLUME:relative/path of a directory or file in the pod.
std::string Converter::volume_path(const std::string& path, const std::string& flag) {
  const std::string absolute = resolve(path);
  const auto place = absolute.starts_with('/') ? container_->place_of(absolute) : std::nullopt;
  const std::string field = container_->path_of_flag(flag);
  if (place && use_volume(place->volume)) return place->volume + ":" + place->relative;
  if (flag == "output_dir") {
    // As in the PyTorchJob, the directory ends with its pod.
    if (!use_volume("scratch")) {
      volumes_.push_back({{"name", "scratch"}, {"emptyDir", ordered_json::object()}});
    }
    note(field, "spec.trainer.output",
         fmt::format("--output_dir {}: on no volume, so the trained model ends with its pod and no "
                     "restart finds a checkpoint; name a persistentVolumeClaim instead of the "
                     "emptyDir",
                     path));
    std::string relative = fs::path(absolute).relative_path().string();
    while (relative.ends_with('/')) relative.pop_back();
    return "scratch:" + (relative.empty() || relative == "." ? "output" : relative);
  }
  error(field,
        fmt::format("--{}: found {}, which is on no volume of the pod, expected a path below "
                    "a mountPath of volumeMounts",
                    flag, shown(path)));
  return "";
}

const json* Converter::find_pod_volume(const std::string& name, std::string& path) const {
  const json& list = member(pod(), "volumes");
  for (std::size_t i = 0; list.is_array() && i < list.size(); ++i) {
    if (string_member(list[i], "name") != name) continue;
    path = element_path(pod_path("volumes"), i);
    return &list[i];
  }
  return nullptr;
}

// Puts a volume of the pod into spec.volumes. Returns false if the pod has none of that name.
bool Converter::use_volume(const std::string& name) {
  for (const ordered_json& known : volumes_) {
    if (known["name"] == name) return true;
  }
  std::string path;
  const json* volume = find_pod_volume(name, path);
  if (volume == nullptr) return false;
  made_of(element_path("spec.volumes", volumes_.size()), path);
  ordered_json copy = {{"name", name}};
  for (const auto& source : volume->items()) {
    if (source.key() != "name") copy[source.key()] = source.value();
  }
  volumes_.push_back(std::move(copy));
  return true;
}

void Converter::convert_worker() {
  const std::int64_t masters = job_.spec.master ? 1 : 0;
  const std::int64_t workers = job_.spec.worker ? *job_.spec.worker->replicas : 0;
  worker()["replicas"] = masters + workers;
  made_of("spec.worker.replicas", replica_path_ + ".replicas");
  convert_image();
  if (written_.spec.worker ? written_.spec.worker->restart_policy
                           : written_.spec.master->restart_policy) {
    worker()["restartPolicy"] = std::string(api::to_string(*replica().restart_policy));
  }
  convert_resources();
  convert_env();
  convert_mounts();  // after all that may use a volume
}

void Converter::convert_image() {
  const std::string path = container_->path() + ".image";
  const std::string image = string_member(container_->json(), "image");
  static const std::string kOwn = fmt::format("tilewright-worker:{}", kVersion);
  if (image_name(image) == "tilewright-worker") {
    worker()["image"] = image;
  } else {
    worker()["image"] = kOwn;
    note(path, "spec.worker.image",
         fmt::format("image {}: the native trainer has an image of its own", shown(image)));
  }
  made_of("spec.worker.image", path);
  const std::string pull_policy = string_member(container_->json(), "imagePullPolicy");
  if (!pull_policy.empty()) worker()["imagePullPolicy"] = pull_policy;
}

void Converter::convert_resources() {
  const json& resources = member(container_->json(), "resources");
  const json& limits = member(resources, "limits");
  const json& requests = member(resources, "requests");
  const std::string path = container_->path() + ".resources";
  ordered_json target = ordered_json::object();
  std::set<std::string> names;
  for (const json* amounts : {&limits, &requests}) {
    for (const auto& amount : amounts->items()) names.insert(amount.key());
  }
  const auto text = [](const json& amount) {
    return amount.is_string() ? amount.get<std::string>() : amount.dump();
  };
  for (const std::string& name : names) {
    const json& limit = member(limits, name.c_str());
    const json& request = member(requests, name.c_str());
    const json& amount = limit.is_null() ? request : limit;
    const std::string from = member_path(path + (limit.is_null() ? ".requests" : ".limits"), name);
    if (name.find("/gpu") != std::string::npos || name.starts_with("nvidia.com/")) {
      note(from, "spec.worker.resources",
           fmt::format("{} {}: Tilewright computes on CPUs only", name, text(amount)));
      continue;
    }
    target[name] = amount.is_number_integer() ? ordered_json(amount) : ordered_json(text(amount));
    made_of(member_path("spec.worker.resources", name), from);
    if (!limit.is_null() && !request.is_null() && text(limit) != text(request)) {
      note(member_path(path + ".requests", name), member_path("spec.worker.resources", name),
           fmt::format("requests {} {}: a worker requests its limit", name, text(request)), true);
    }
  }
  for (const char* name : {"cpu", "memory"}) {
    if (target.contains(name)) continue;
    note(path, member_path("spec.worker.resources", name),
         fmt::format("{}: the pod has no limit; a worker has one, so write how much it may use",
                     name),
         true);
  }
  if (!target.empty()) worker()["resources"] = std::move(target);
}

// Mounts that no path of the trainer uses, and /dev/shm.
void Converter::convert_mounts() {
  const json& mounts = member(container_->json(), "volumeMounts");
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string name = string_member(mounts[i], "name");
    std::string at = fs::path(string_member(mounts[i], "mountPath")).lexically_normal().string();
    while (at.size() > 1 && at.ends_with('/')) at.pop_back();
    const std::string path = element_path(container_->path() + ".volumeMounts", i);
    if (at == kSharedMemoryPath) {
      std::string volume_path;
      const json* volume = find_pod_volume(name, volume_path);
      const json& source = volume == nullptr ? mounts : member(*volume, "emptyDir");
      const json& limit = member(source, "sizeLimit");
      if (!limit.is_null()) {
        worker()["sharedMemory"] = limit.is_string() ? limit.get<std::string>() : limit.dump();
        made_of("spec.worker.sharedMemory", volume_path);
      } else {
        note(path, "spec.worker.sharedMemory",
             "/dev/shm without sizeLimit: each worker has a /dev/shm of its own; sharedMemory sets "
             "its size",
             true);
      }
      continue;
    }
    const bool used = std::ranges::any_of(
        volumes_, [&](const ordered_json& volume) { return volume["name"] == name; });
    if (used) {
      note(path, "spec.volumes",
           fmt::format("mountPath {}: the volume {} is at /mnt/tilewright/{}", at, name, name),
           true);
      continue;
    }
    add_pod_volume(name);
    overlay_worker_["volumeMounts"].push_back(ordered_json(mounts[i]));
    made_of(element_path(std::string(kPodTemplate) + ".spec.containers[0].volumeMounts",
                         overlay_worker_["volumeMounts"].size() - 1),
            path);
  }
}

// Adds a volume of the pod to the podTemplate, unless spec.volumes has it.
void Converter::add_pod_volume(const std::string& name) {
  for (const ordered_json* list : {&volumes_, &overlay_["volumes"]}) {
    for (const ordered_json& known : *list) {
      if (known["name"] == name) return;
    }
  }
  std::string path;
  const json* volume = find_pod_volume(name, path);
  if (volume == nullptr) return;
  made_of(element_path(std::string(kPodTemplate) + ".spec.volumes", overlay_["volumes"].size()),
          path);
  overlay_["volumes"].push_back(ordered_json(*volume));
}

void Converter::convert_env() {
  ordered_json target = ordered_json::array();
  const auto convert_variable = [&](const std::string& name, std::string value,
                                    const std::string& path) {
    const std::string place = member_path("spec.worker.env", name);
    if (const std::string_view why = why_not_needed(name); !why.empty()) {
      return note(path, place, fmt::format("{} {}: {}", name, shown(value), why));
    }
    made_of(element_path("spec.worker.env", target.size()), path);
    const auto on_volume = value.starts_with('/') ? container_->place_of(value) : std::nullopt;
    if (on_volume && use_volume(on_volume->volume)) {
      note(path, element_path("spec.worker.env", target.size()),
           fmt::format("{} {}: the volume is at /mnt/tilewright/{}", name, shown(value),
                       on_volume->volume),
           true);
      value = api::pod_path({on_volume->volume, on_volume->relative});
    }
    target.push_back({{"name", name}, {"value", value}});
  };
  // Those that the script sets replace those of the container.
  const auto& exported = training_.command.variables;
  const json& env = member(container_->json(), "env");
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = string_member(env[i], "name");
    const std::string path = element_path(container_->path() + ".env", i);
    if (exported.contains(name)) continue;
    if (member(env[i], "valueFrom").is_null() || !why_not_needed(name).empty()) {
      const auto known = container_->environment().find(name);
      convert_variable(name, known == container_->environment().end() ? "" : known->second, path);
    } else {
      made_of(element_path("spec.worker.env", target.size()), path);
      target.push_back({{"name", name}, {"valueFrom", ordered_json(env[i]["valueFrom"])}});
    }
  }
  for (const auto& [name, value] : exported) {
    convert_variable(name, value, container_->path_of_flag(""));
  }
  if (!target.empty()) worker()["env"] = std::move(target);
}

void Converter::convert_pod() {
  const json& spec = pod();
  // Fields that spec.worker has under the same name.
  constexpr std::array<const char*, 9> kSame = {"nodeSelector",
                                                "tolerations",
                                                "affinity",
                                                "topologySpreadConstraints",
                                                "serviceAccountName",
                                                "priorityClassName",
                                                "schedulerName",
                                                "imagePullSecrets",
                                                "terminationGracePeriodSeconds"};
  for (const char* name : kSame) {
    if (member(spec, name).is_null()) continue;
    worker()[name] = ordered_json(spec[name]);
    made_of(member_path("spec.worker", name), pod_path(name));
  }
  convert_security();
  convert_other_containers();
  const std::set<std::string, std::less<>> done = {"containers", "volumes", "securityContext",
                                                   "initContainers", "restartPolicy"};
  for (const auto& field : spec.items()) {
    const std::string& name = field.key();
    const bool same = std::ranges::find(kSame, std::string_view(name)) != kSame.end();
    if (same || done.contains(name) || field.value().is_null()) continue;
    overlay_[name] = ordered_json(field.value());
    made_of(member_path(std::string(kPodTemplate) + ".spec", name), pod_path(name));
  }
  if (!member(spec, "restartPolicy").is_null()) {
    note(pod_path("restartPolicy"), "spec.worker.restartPolicy",
         fmt::format("restartPolicy {} of the pod: as in Kubeflow, that of the replicas counts",
                     shown(spec["restartPolicy"])));
  }
  const json& container = container_->json();
  const std::set<std::string, std::less<>> converted = {
      "name", "image",     "imagePullPolicy", "command",    "args",
      "env",  "resources", "volumeMounts",    "workingDir", "securityContext"};
  for (const auto& field : container.items()) {
    const std::string& name = field.key();
    if (converted.contains(name) || field.value().is_null()) continue;
    const std::string path = member_path(container_->path(), name);
    if (name == "envFrom") {
      overlay_worker_[name] = ordered_json(field.value());
      made_of(std::string(kPodTemplate) + ".spec.containers[0].envFrom", path);
    } else if (name == "ports") {
      for (std::size_t i = 0; i < field.value().size(); ++i) {
        const json& port = field.value()[i];
        if (string_member(port, "name") == api::kPyTorchPortName) continue;
        note(element_path(path, i), "spec.worker",
             fmt::format("port {}: the operator sets the ports of a worker",
                         shown(member(port, "containerPort"))),
             true);
      }
    } else {
      note(path, "spec.worker",
           fmt::format("{}: the operator sets what starts, watches and ends a worker", name), true);
    }
  }
  if (!overlay_worker_.empty()) {
    ordered_json entry = {{"name", kWorkerContainer}};
    entry.update(overlay_worker_);
    // The indices in `origins_` count this container first.
    ordered_json containers = ordered_json::array({entry});
    for (ordered_json& other : overlay_["containers"]) containers.push_back(std::move(other));
    overlay_["containers"] = std::move(containers);
  }
  ordered_json pod_template = ordered_json::object();
  const json& metadata = member(replica().pod_template, "metadata");
  for (const char* name : {"labels", "annotations"}) {
    if (member(metadata, name).is_null()) continue;
    pod_template["metadata"][name] = ordered_json(metadata[name]);
    made_of(fmt::format("{}.metadata.{}", kPodTemplate, name),
            fmt::format("{}.template.metadata.{}", replica_path_, name));
  }
  if (overlay_.contains("volumes") && overlay_["volumes"].empty()) overlay_.erase("volumes");
  if (overlay_.contains("containers") && overlay_["containers"].empty()) {
    overlay_.erase("containers");
  }
  if (!overlay_.empty()) pod_template["spec"] = std::move(overlay_);
  if (!pod_template.empty()) worker()["podTemplate"] = std::move(pod_template);
}

void Converter::convert_security() {
  const json& of_pod = member(pod(), "securityContext");
  const json& of_container = member(container_->json(), "securityContext");
  const json& user = member(of_container, "runAsUser").is_null()
                         ? member(of_pod, "runAsUser")
                         : member(of_container, "runAsUser");
  const std::string path = member(of_container, "runAsUser").is_null()
                               ? pod_path("securityContext.runAsUser")
                               : container_->path() + ".securityContext.runAsUser";
  if (user == 0) {
    note(path, "spec.worker.runAsUser",
         "runAsUser 0: restricted Pod Security forbids root; the workers run as 65532, so the "
         "volumes must let that user write, for example with fsGroup");
  } else if (!user.is_null()) {
    worker()["runAsUser"] = ordered_json(user);
    made_of("spec.worker.runAsUser", path);
  }
  const json& group = member(of_pod, "fsGroup");
  if (!group.is_null() && group != 0) {
    worker()["fsGroup"] = ordered_json(group);
    made_of("spec.worker.fsGroup", pod_path("securityContext.fsGroup"));
  }
  for (const auto& field : of_pod.items()) {
    const std::string& name = field.key();
    if (name == "runAsUser" || name == "fsGroup" || name == "runAsNonRoot") continue;
    overlay_["securityContext"][name] = ordered_json(field.value());
    made_of(fmt::format("{}.spec.securityContext.{}", kPodTemplate, name),
            pod_path("securityContext." + name));
  }
  for (const auto& field : of_container.items()) {
    if (field.key() == "runAsUser" || field.key() == "runAsNonRoot") continue;
    note(member_path(container_->path() + ".securityContext", field.key()), "spec.worker",
         fmt::format("securityContext {}: the operator sets what restricted Pod Security requires",
                     field.key()),
         true);
  }
}

// Containers beside the one that trains.
void Converter::convert_other_containers() {
  for (const char* list : {"containers", "initContainers"}) {
    const json& containers = member(pod(), list);
    for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
      if (&containers[i] == &container_->json()) continue;
      const std::string path = element_path(pod_path(list), i);
      const bool beside = std::string_view(list) == "containers";
      const std::size_t shift = beside && !overlay_worker_.empty() ? 1 : 0;
      made_of(element_path(fmt::format("{}.spec.{}", kPodTemplate, list),
                           overlay_[list].size() + shift),
              path);
      overlay_[list].push_back(ordered_json(containers[i]));
      const json& mounts = member(containers[i], "volumeMounts");
      for (std::size_t m = 0; mounts.is_array() && m < mounts.size(); ++m) {
        add_pod_volume(string_member(mounts[m], "name"));
      }
    }
  }
}

void Converter::convert_master() {
  if (!job_.spec.master || !job_.spec.worker) return;
  const std::string path = member_path(kReplicaSpecs, api::kMasterType);
  note(path, "spec.worker.replicas",
       "Master: a TrainJob has workers only; the first one takes the master's place, so there is "
       "one more",
       true);
  if (job_.spec.master->pod_template == job_.spec.worker->pod_template) return;
  const Container master(*job_.spec.master, path);
  const Result<Training> training = master.training();
  if (!training.ok() || training->command.arguments != training_.command.arguments) {
    return error(master.path() + ".command",
                 "found another training than that of the Worker, expected the same");
  }
  note(path + ".template", "spec.worker",
       "template of the Master: it differs from the Worker's; all workers have the Worker's", true);
}

// Checks the TrainJob as `tilewright validate` does. Fields of the podTemplate that a TrainJob cannot
// have become notes.
void Converter::validate() {
  constexpr int kMaxRemovals = 100;
  for (int round = 0;; ++round) {
    api::DecodeResult decoded = api::decode_object(json(tree_), true);
    std::vector<FieldError> errors = decoded.errors;
    if (errors.empty()) {
      api::apply_defaults(decoded.job);
      api::Findings findings = api::validate(decoded.job);
      findings.append(api::validate_for_cluster(decoded.job));
      errors = findings.errors;
    }
    if (errors.empty()) return;
    const auto source = [&](std::string place) {
      while (!place.empty()) {
        const auto found = origins_.find(place);
        if (found != origins_.end()) return found->second;
        const std::size_t end = place.find_last_of(".[");
        place = end == std::string::npos ? "" : place.substr(0, end);
      }
      return std::string("spec");
    };
    const auto in_template = std::ranges::find_if(
        errors, [](const FieldError& error) { return error.path.starts_with(kPodTemplate); });
    if (in_template == errors.end() || round == kMaxRemovals) {
      for (const FieldError& found : errors) {
        error(source(found.path), fmt::format("{} of the TrainJob: {}", found.path, found.message));
      }
      return;
    }
    const auto [name, value] = remove_field(tree_, in_template->path);
    note(source(in_template->path), kPodTemplate, fmt::format("{}: {}", name, in_template->message),
         true);
  }
}

}  // namespace

Conversion convert(const api::PyTorchJob& job, const Positions& positions) {
  return Converter(job, positions).run();
}

std::string to_manifest(const Conversion& conversion, std::string_view source) {
  Comments comments;
  for (const Note& note : conversion.notes) comments[note.place].push_back(note.at.message);
  const std::string head = fmt::format(
      "Written by `tilewright convert {}`: the TrainJob that does the work of the PyTorchJob "
      "natively. A comment says what becomes of a line without counterpart.",
      source);
  return comment_lines(head, 0) + to_commented_yaml(conversion.tree, comments);
}

Result<std::string> native_summary(const api::PyTorchJob& job) {
  api::PyTorchJob complete = job;
  api::apply_defaults(complete);
  const bool has_worker = complete.spec.worker.has_value();
  const api::PyTorchReplicaSpec& replica =
      has_worker ? *complete.spec.worker : *complete.spec.master;
  const Container container(
      replica, member_path(kReplicaSpecs, has_worker ? api::kWorkerType : api::kMasterType));
  const Result<Training> training = container.training();
  if (!training.ok()) {
    return Error{training.error().code,
                 fmt::format("{}.command: {}", container.path(), training.error().message)};
  }
  const std::int64_t pods =
      (has_worker ? *complete.spec.worker->replicas : 0) + (complete.spec.master ? 1 : 0);
  return fmt::format("{} runs natively on {} {}",
                     fs::path(training->command.script).filename().string(), pods,
                     pods == 1 ? "worker" : "workers");
}

}  // namespace tilewright::convert
