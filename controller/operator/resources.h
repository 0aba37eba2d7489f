// The resource types of the operator that are not built into Kubernetes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/contract/labels.h"
#include "controller/client/resource.h"

namespace tilewright::controller::resource {

inline kube::ResourceType train_jobs() {
  const std::string version = kApiVersion;
  return {kApiGroup, version.substr(version.find('/') + 1), kTrainJobPlural, kTrainJobKind};
}

inline kube::ResourceType pytorch_jobs() {
  return {kKubeflowGroup, "v1", kPyTorchJobPlural, kPyTorchJobKind};
}

inline kube::ResourceType autoscalers() {
  return {"autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"};
}

// The PodGroup of Volcano or scheduler-plugins, depending on the apiVersion of `group`.
inline kube::ResourceType pod_groups(const nlohmann::json& group) {
  const auto version = group.at("apiVersion").get<std::string>();
  const std::size_t slash = version.find('/');
  return {version.substr(0, slash), version.substr(slash + 1), "podgroups", "PodGroup"};
}

}  // namespace tilewright::controller::resource
