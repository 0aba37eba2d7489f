// The volume sources of Kubernetes, and which of them the restricted Pod Security Standard allows
// (kubernetes.io: "Pod Security Standards").
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "controller/api/field.h"

namespace tilewright::api {

struct VolumeSource {
  std::string_view name;
  // Description of the field in spec.volumes; empty: the CRD does not have the field.
  std::string_view description;
  bool allowed = false;
};

std::span<const VolumeSource> volume_sources();
// nullptr if `name` is not a volume source.
const VolumeSource* find_volume_source(std::string_view name);
// The source of a volume of a pod whose files are deleted with the pod; empty: they are kept.
std::string_view temporary_source(const nlohmann::json& volume);
std::vector<std::string_view> allowed_volume_sources();
std::vector<std::string_view> forbidden_volume_sources();

// The usual names of a volume for /dev/shm. spec.worker.sharedMemory takes its place: such a volume
// in memory would leave /dev/shm as it is.
inline constexpr std::array<std::string_view, 2> kSharedMemoryVolumes = {"dshm", "shm"};
// Of an entry with `name` and `emptyDir`.
Rule shared_memory_volume_rule();
nlohmann::json empty_dir_schema();

// Of an entry of spec.volumes: the properties of the sources, and exactly one allowed source.
nlohmann::json volume_source_properties();
std::vector<Rule> volume_source_rules();

}  // namespace tilewright::api
