#include "controller/api/strategic_merge.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "controller/api/json_members.h"

namespace tilewright::api {
namespace {

using nlohmann::json;

constexpr const char* kDirective = "$patch";

// The lists of a PodTemplateSpec with patchMergeKey in the API reference; all others are replaced.
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

std::string directive_of(const json& overlay) { return text_member(overlay, kDirective); }

json without_directives(const json& value) {
  if (!value.is_structured()) return value;
  json clean = value.is_object() ? json::object() : json::array();
  for (const auto& member : value.items()) {
    if (value.is_array()) {
      if (directive_of(member.value()).empty()) clean.push_back(without_directives(member.value()));
    } else if (member.key() != kDirective && !member.value().is_null()) {
      clean[member.key()] = without_directives(member.value());
    }
  }
  return clean;
}

void merge_list(json& list, const json& overlay, const char* key) {
  for (const json& entry : overlay) {
    if (directive_of(entry) == "replace" && !entry.contains(key)) {
      list = without_directives(overlay);
      return;
    }
  }
  for (const json& entry : overlay) {
    const auto same = [&](const json& other) {
      return entry.is_object() && other.is_object() && entry.contains(key) && other.contains(key) &&
             entry[key] == other[key];
    };
    const auto found = std::find_if(list.begin(), list.end(), same);
    if (directive_of(entry) == "delete") {
      if (found != list.end()) list.erase(found);
    } else if (found != list.end()) {
      strategic_merge(*found, entry);
    } else {
      list.push_back(without_directives(entry));
    }
  }
}

}  // namespace

void strategic_merge(json& pod, const json& overlay) {
  if (!overlay.is_object() || !pod.is_object() || directive_of(overlay) == "replace") {
    pod = without_directives(overlay);
    return;
  }
  for (const auto& member : overlay.items()) {
    const json& value = member.value();
    if (member.key() == kDirective) continue;
    if (value.is_null() || directive_of(value) == "delete") {
      pod.erase(member.key());
      continue;
    }
    json& target = pod[member.key()];
    const char* key = value.is_array() ? merge_key_of(member.key()) : nullptr;
    if (key != nullptr && target.is_array()) {
      merge_list(target, value, key);
    } else if (value.is_object() && target.is_object()) {
      strategic_merge(target, value);
    } else {
      target = without_directives(value);
    }
  }
}

}  // namespace tilewright::api
