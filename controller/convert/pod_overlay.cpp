#include "controller/convert/pod_overlay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "common/contract/labels.h"
#include "common/json/members.h"
#include "common/json/positions.h"
#include "controller/api/pod_template_types.h"

namespace tilewright::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSharedMemoryPath = "/dev/shm";

// Fields of the pod that spec.worker has under the same name.
constexpr std::array<std::string_view, 9> kWorkerFields = {"nodeSelector",
                                                           "tolerations",
                                                           "affinity",
                                                           "topologySpreadConstraints",
                                                           "serviceAccountName",
                                                           "priorityClassName",
                                                           "schedulerName",
                                                           "imagePullSecrets",
                                                           "terminationGracePeriodSeconds"};

}  // namespace

// Mounts that no path of the trainer uses, and /dev/shm.
void PodOverlay::convert_mounts() {
  const json& mounts = member(source_.container.json(), "volumeMounts");
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string name = string_member(mounts[i], "name");
    std::string at = fs::path(string_member(mounts[i], "mountPath")).lexically_normal().string();
    while (at.size() > 1 && at.ends_with('/')) at.pop_back();
    const std::string path = element_path(source_.container.path() + ".volumeMounts", i);
    if (at == kSharedMemoryPath) {
      convert_shared_memory(name, path);
    } else if (volumes_.uses(name)) {
      draft_.note(
          path, "spec.volumes",
          fmt::format("mountPath {}: the volume {} is at /mnt/tilewright/{}", at, name, name),
          true);
    } else {
      add_pod_volume(name);
      overlay_worker_["volumeMounts"].push_back(ordered_json(mounts[i]));
      draft_.made_of(element_path(std::string(kPodTemplate) + ".spec.containers[0].volumeMounts",
                                  overlay_worker_["volumeMounts"].size() - 1),
                     path);
    }
  }
}

// `volume_name`, `mount_path`: of the mount at /dev/shm.
void PodOverlay::convert_shared_memory(const std::string& volume_name,
                                       const std::string& mount_path) {
  std::string volume_path;
  const json* volume = volumes_.find_in_pod(volume_name, volume_path);
  const json limit = volume == nullptr ? json() : member(member(*volume, "emptyDir"), "sizeLimit");
  if (limit.is_null()) {
    return draft_.note(mount_path, "spec.worker.sharedMemory",
                       "/dev/shm without sizeLimit: each worker has its own /dev/shm; "
                       "sharedMemory sets its size",
                       true);
  }
  draft_.worker()["sharedMemory"] = limit.is_string() ? limit.get<std::string>() : limit.dump();
  draft_.made_of("spec.worker.sharedMemory", volume_path);
}

// Adds a volume of the pod to the podTemplate, unless spec.volumes has it.
void PodOverlay::add_pod_volume(const std::string& name) {
  if (volumes_.uses(name)) return;
  for (const ordered_json& known : overlay_["volumes"]) {
    if (known["name"] == name) return;
  }
  std::string path;
  const json* volume = volumes_.find_in_pod(name, path);
  if (volume == nullptr) return;
  draft_.made_of(
      element_path(std::string(kPodTemplate) + ".spec.volumes", overlay_["volumes"].size()), path);
  overlay_["volumes"].push_back(ordered_json(*volume));
}

void PodOverlay::convert_pod() {
  convert_worker_fields();
  convert_security();
  convert_other_containers();
  const std::set<std::string> unknown = note_unknown_fields();
  convert_pod_fields(unknown);
  note_restart_policy();
  convert_container_fields(unknown);
  add_worker_container();
  write_pod_template();
}

void PodOverlay::convert_worker_fields() {
  for (const std::string_view field : kWorkerFields) {
    const std::string name(field);
    const json& value = member(source_.pod(), name.c_str());
    if (value.is_null()) continue;
    draft_.worker()[name] = ordered_json(value);
    draft_.made_of(member_path("spec.worker", name), source_.pod_path(name));
  }
}

// The other fields of the pod. `unknown`: paths of fields that no pod has, here and below.
void PodOverlay::convert_pod_fields(const std::set<std::string>& unknown) {
  const std::set<std::string, std::less<>> done = {"containers", "volumes", "securityContext",
                                                   "initContainers", "restartPolicy"};
  for (const auto& field : source_.pod().items()) {
    const std::string& name = field.key();
    const bool of_worker =
        std::ranges::find(kWorkerFields, std::string_view(name)) != kWorkerFields.end();
    if (of_worker || done.contains(name) || field.value().is_null()) continue;
    if (unknown.contains(source_.pod_path(name))) continue;
    overlay_[name] = ordered_json(field.value());
    draft_.made_of(member_path(std::string(kPodTemplate) + ".spec", name), source_.pod_path(name));
  }
}

void PodOverlay::note_restart_policy() {
  const json& policy = member(source_.pod(), "restartPolicy");
  if (policy.is_null()) return;
  draft_.note(source_.pod_path("restartPolicy"), "spec.worker.restartPolicy",
              fmt::format("restartPolicy {} of the pod: ignored, as by Kubeflow; that of the "
                          "replicas applies",
                          format_value(policy)));
}

// The fields of the container that trains, except those that have been converted.
void PodOverlay::convert_container_fields(const std::set<std::string>& unknown) {
  const std::set<std::string, std::less<>> converted = {
      "name", "image",     "imagePullPolicy", "command",    "args",
      "env",  "resources", "volumeMounts",    "workingDir", "securityContext"};
  for (const auto& field : source_.container.json().items()) {
    const std::string& name = field.key();
    if (converted.contains(name) || field.value().is_null()) continue;
    const std::string path = member_path(source_.container.path(), name);
    if (unknown.contains(path)) continue;
    if (name == "envFrom") {
      overlay_worker_[name] = ordered_json(field.value());
      draft_.made_of(std::string(kPodTemplate) + ".spec.containers[0].envFrom", path);
    } else if (name == "ports") {
      note_ports(field.value(), path);
    } else {
      const bool set_by_operator = name == "lifecycle" || name.ends_with("Probe");
      draft_.note(path, "spec.worker",
                  fmt::format("{}: {}", name,
                              set_by_operator ? "the operator sets the probes and lifecycle of a "
                                                "worker"
                                              : "a TrainJob has no such field"),
                  true);
    }
  }
}

void PodOverlay::note_ports(const json& ports, const std::string& path) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (string_member(ports[i], "name") == api::kPyTorchPortName) continue;
    draft_.note(element_path(path, i), "spec.worker",
                fmt::format("port {}: the operator sets the ports of a worker",
                            format_value(member(ports[i], "containerPort"))),
                true);
  }
}

// Puts the worker's container before the others: the paths given to made_of() count it first.
void PodOverlay::add_worker_container() {
  if (overlay_worker_.empty()) return;
  ordered_json entry = {{"name", kWorkerContainer}};
  entry.update(overlay_worker_);
  ordered_json containers = ordered_json::array({entry});
  for (ordered_json& other : overlay_["containers"]) containers.push_back(std::move(other));
  overlay_["containers"] = std::move(containers);
}

void PodOverlay::write_pod_template() {
  ordered_json pod_template = ordered_json::object();
  const json& metadata = member(source_.main.spec.pod_template, "metadata");
  for (const char* name : {"labels", "annotations"}) {
    if (member(metadata, name).is_null()) continue;
    pod_template["metadata"][name] = ordered_json(metadata[name]);
    draft_.made_of(fmt::format("{}.metadata.{}", kPodTemplate, name),
                   fmt::format("{}.template.metadata.{}", source_.main.path, name));
  }
  for (const char* list : {"volumes", "containers"}) {
    if (overlay_.contains(list) && overlay_[list].empty()) overlay_.erase(list);
  }
  if (!overlay_.empty()) pod_template["spec"] = std::move(overlay_);
  if (!pod_template.empty()) draft_.worker()["podTemplate"] = std::move(pod_template);
}

// Notes the fields that no pod has, of the pod and the container that trains. Returns their paths.
std::set<std::string> PodOverlay::note_unknown_fields() {
  std::set<std::string> paths;
  const std::string pod = source_.main.path + ".template";
  const std::string& container = source_.container.path();
  for (const FieldError& unknown : api::unknown_pod_fields(source_.main.spec.pod_template, pod)) {
    paths.insert(unknown.path);
    const bool in_container = unknown.path.starts_with(container + ".");
    // What is in the podTemplate, such as another container, is copied as it is.
    if (!in_container && unknown.path.find('[') != std::string::npos) continue;
    const std::string name = unknown.path.substr((in_container ? container : pod).size() + 1);
    draft_.note(unknown.path, "spec.worker", fmt::format("{}: {}", name, unknown.message), true);
  }
  return paths;
}

void PodOverlay::convert_security() {
  const json& of_pod = member(source_.pod(), "securityContext");
  const json& of_container = member(source_.container.json(), "securityContext");
  const json& user = member(of_container, "runAsUser").is_null()
                         ? member(of_pod, "runAsUser")
                         : member(of_container, "runAsUser");
  const std::string path = member(of_container, "runAsUser").is_null()
                               ? source_.pod_path("securityContext.runAsUser")
                               : source_.container.path() + ".securityContext.runAsUser";
  if (user == 0) {
    draft_.note(
        path, "spec.worker.runAsUser",
        "runAsUser 0: restricted Pod Security forbids root; the workers run as 65532, so the "
        "volumes must let that user write, for example with fsGroup");
  } else if (!user.is_null()) {
    draft_.worker()["runAsUser"] = ordered_json(user);
    draft_.made_of("spec.worker.runAsUser", path);
  }
  const json& group = member(of_pod, "fsGroup");
  if (!group.is_null() && group != 0) {
    draft_.worker()["fsGroup"] = ordered_json(group);
    draft_.made_of("spec.worker.fsGroup", source_.pod_path("securityContext.fsGroup"));
  }
  for (const auto& field : of_pod.items()) {
    const std::string& name = field.key();
    if (name == "runAsUser" || name == "fsGroup" || name == "runAsNonRoot") continue;
    overlay_["securityContext"][name] = ordered_json(field.value());
    draft_.made_of(fmt::format("{}.spec.securityContext.{}", kPodTemplate, name),
                   source_.pod_path("securityContext." + name));
  }
  for (const auto& field : of_container.items()) {
    if (field.key() == "runAsUser" || field.key() == "runAsNonRoot") continue;
    draft_.note(
        member_path(source_.container.path() + ".securityContext", field.key()), "spec.worker",
        fmt::format("securityContext {}: the operator sets what restricted Pod Security requires",
                    field.key()),
        true);
  }
}

// Containers beside the one that trains.
void PodOverlay::convert_other_containers() {
  for (const char* list : {"containers", "initContainers"}) {
    const json& containers = member(source_.pod(), list);
    for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
      if (&containers[i] == &source_.container.json()) continue;
      const std::string path = element_path(source_.pod_path(list), i);
      const bool beside = std::string_view(list) == "containers";
      const std::size_t shift = beside && !overlay_worker_.empty() ? 1 : 0;
      draft_.made_of(element_path(fmt::format("{}.spec.{}", kPodTemplate, list),
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

}  // namespace tilewright::convert
