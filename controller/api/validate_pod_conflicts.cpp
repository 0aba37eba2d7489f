// Checks what spec.worker.podTemplate adds beside the worker: volumes, mounts, variables and ports
// that the pod already has, and trainings that are not the worker's.
#include <algorithm>
#include <filesystem>

#include "common/contract/labels.h"
#include "common/contract/ports.h"
#include "controller/api/trainer_path.h"
#include "controller/api/training_programs.h"
#include "controller/api/validate_internal.h"
#include "controller/api/volume_sources.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

// The overlay may change the source of a volume, for example its claim, but a second source would
// make the pod invalid.
void check_sources(const Volume& volume, const json& overlay, const std::string& path,
                   FindingCollector& collector) {
  if (!volume.source.is_object()) return;
  for (const auto& entry : overlay.items()) {
    if (find_volume_source(entry.key()) == nullptr || volume.source.contains(entry.key())) continue;
    collector.error(member_path(path, entry.key()),
                    fmt::format("found a second source for the volume {}, expected {}, as in "
                                "spec.volumes",
                                volume.name, volume.source.begin().key()));
  }
}

void check_volumes(const TrainJob& job, const json& volumes, FindingCollector& collector) {
  for (std::size_t i = 0; volumes.is_array() && i < volumes.size(); ++i) {
    const std::string path = element_path(fmt::format("{}.volumes", kPodSpecPath), i);
    const std::string name = string_member(volumes[i], "name");
    check_shared_memory_volume(name, volumes[i], path, collector);
    if (const Volume* volume = find_volume(job, name)) {
      check_sources(*volume, volumes[i], path, collector);
    }
  }
}

// The kubelet resolves a path relative to the root.
std::filesystem::path normal_mount_path(const std::string& path) {
  return (std::filesystem::path("/" + path) / "").lexically_normal();
}

void check_mounts(const TrainJob& job, const json& mounts, const std::string& path,
                  FindingCollector& collector) {
  for (std::size_t i = 0; mounts.is_array() && i < mounts.size(); ++i) {
    const std::string mount = string_member(mounts[i], "mountPath");
    const std::string name = string_member(mounts[i], "name");
    for (const Volume& volume : job.spec.volumes) {
      // A mount of the same volume may add fields, such as subPath.
      if (name.empty() || name == volume.name ||
          normal_mount_path(mount) != normal_mount_path(pod_path({volume.name, ""}))) {
        continue;
      }
      collector.error(element_path(path, i) + ".mountPath",
                      fmt::format("found {}, expected another path: the volume {} of spec.volumes "
                                  "is mounted there",
                                  describe_value(mount), volume.name));
    }
  }
}

// The paths of spec.trainer are checked with the values of spec.worker.env.
void check_variables(const TrainJob& job, const json& env, const std::string& path,
                     FindingCollector& collector) {
  for (std::size_t i = 0; env.is_array() && i < env.size(); ++i) {
    const std::string name = string_member(env[i], "name");
    for (const EnvVar& variable : job.spec.worker.env) {
      if (variable.name != name) continue;
      collector.error(
          element_path(path, i) + ".name",
          fmt::format("found {}, expected another name: spec.worker.env sets this one", name));
    }
  }
}

// The containers of a pod share its ports.
void check_ports(const TrainJob& job, const json& ports, const std::string& path, bool of_worker,
                 FindingCollector& collector) {
  const std::int64_t last_port = last_transport_port(job);
  for (std::size_t i = 0; ports.is_array() && i < ports.size(); ++i) {
    const json& number = member(ports[i], "containerPort");
    const std::string name = string_member(ports[i], "name");
    const std::string place = element_path(path, i);
    if (number.is_number_integer() &&
        (number == kWorkerMetricsPort || (number >= kTransportPort && number <= last_port))) {
      collector.error(place + ".containerPort",
                      fmt::format("found {}, expected another port: the worker listens on this one",
                                  number.dump()));
    } else if (of_worker && (name == kTransportPortName || name == kMetricsPortName)) {
      collector.error(
          place + ".name",
          fmt::format("found {}, expected another name: the operator has a port of this name",
                      name));
    }
  }
}

void check_training(const json& container, const std::string& path, FindingCollector& collector) {
  const auto refuse = [&](const std::string& place, std::string_view found) {
    collector.error(place, fmt::format("found {}, {}", found, kNoOtherTraining));
  };
  if (member(container, "name") == kPyTorchContainer) refuse(path + ".name", kPyTorchContainer);
  for (const char* field : {"command", "args"}) {
    const json& words = member(container, field);
    for (std::size_t i = 0; words.is_array() && i < words.size(); ++i) {
      if (!words[i].is_string()) continue;
      const auto& word = words[i].get_ref<const std::string&>();
      for (const std::string_view program : kTrainingPrograms) {
        if (word.find(program) == std::string::npos) continue;
        refuse(element_path(path + "." + field, i), program);
        break;
      }
    }
  }
}

}  // namespace

void check_shared_memory_volume(const std::string& name, const json& source,
                                const std::string& path, FindingCollector& collector) {
  if (std::ranges::find(kSharedMemoryVolumes, name) == kSharedMemoryVolumes.end()) return;
  if (string_member(member(source, "emptyDir"), "medium") != "Memory") return;
  collector.error(path,
                  fmt::format("found the memory volume {}, expected spec.worker.sharedMemory, "
                              "which sets the size of /dev/shm",
                              name));
}

void validate_pod_conflicts(const TrainJob& job, FindingCollector& collector) {
  const json& spec = member(job.spec.worker.pod_template, "spec");
  check_volumes(job, member(spec, "volumes"), collector);
  each_container(
      spec, kPodSpecPath, [&](const json& container, const std::string& path, std::string_view) {
        const bool of_worker = member(container, "name") == kWorkerContainer;
        check_ports(job, member(container, "ports"), path + ".ports", of_worker, collector);
        if (!of_worker) return check_training(container, path, collector);
        check_mounts(job, member(container, "volumeMounts"), path + ".volumeMounts", collector);
        check_variables(job, member(container, "env"), path + ".env", collector);
      });
}

}  // namespace tilewright::api
