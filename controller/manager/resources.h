// The kinds of objects that the manager handles beside those of kube/resource.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/contract/labels.h"
#include "controller/kube/resource.h"

namespace tilewright::manager::resource {

inline kube::ResourceType train_jobs() {
  const std::string version = kApiVersion;
  return {kApiGroup, version.substr(version.find('/') + 1), kTrainJobPlural, kTrainJobKind};
}

// Volcano's or that of scheduler-plugins, as reconcile::build_pod_group() made the object.
inline kube::ResourceType pod_groups(const nlohmann::json& group) {
  const auto version = group.at("apiVersion").get<std::string>();
  const std::size_t slash = version.find('/');
  return {version.substr(0, slash), version.substr(slash + 1), "podgroups", "PodGroup"};
}

}  // namespace tilewright::manager::resource
