#include "controller/api/strategic_merge.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tilewright::api {
namespace {

using nlohmann::json;

// The lists of a PodTemplateSpec that have a patchMergeKey in the API reference.
struct MergeKey {
  std::string_view list;
  const char* key;
};
constexpr std::array kMergeKeys = {
    MergeKey{"containers", "name"},
    MergeKey{"initContainers", "name"},
    MergeKey{"env", "name"},
    MergeKey{"volumes", "name"},
    MergeKey{"volumeMounts", "mountPath"},
    MergeKey{"volumeDevices", "devicePath"},
    MergeKey{"ports", "containerPort"},
    MergeKey{"imagePullSecrets", "name"},
    MergeKey{"hostAliases", "ip"},
    MergeKey{"topologySpreadConstraints", "topologyKey"},
};

const char* merge_key_of(std::string_view list) {
  for (const MergeKey& known : kMergeKeys) {
    if (known.list == list) return known.key;
  }
  return nullptr;
}

void merge_list(json& list, const json& overlay, const char* key) {
  for (const json& entry : overlay) {
    const auto same = [&](const json& other) {
      return entry.is_object() && other.is_object() && entry.contains(key) && other.contains(key) &&
             entry[key] == other[key];
    };
    const auto found = std::find_if(list.begin(), list.end(), same);
    if (found != list.end()) {
      strategic_merge(*found, entry);
    } else {
      list.push_back(entry);
    }
  }
}

}  // namespace

void strategic_merge(json& pod, const json& overlay) {
  if (!overlay.is_object() || !pod.is_object()) {
    pod = overlay;
    return;
  }
  for (const auto& member : overlay.items()) {
    const json& value = member.value();
    json& target = pod[member.key()];
    const char* key = value.is_array() ? merge_key_of(member.key()) : nullptr;
    if (key != nullptr && target.is_array()) {
      merge_list(target, value, key);
    } else {
      strategic_merge(target, value);
    }
  }
}

}  // namespace tilewright::api
