// Finds out from events of the kubelet and the volume attacher why a scheduled pod does not start.
// The pod's status does not contain these reasons.
#pragma once

#include <optional>
#include <string>

#include "controller/client/client.h"

namespace tilewright::controller {

struct PodStartFailure {
  std::string reason;  // FailedMount, FailedAttachVolume, FailedCreatePodSandBox
  std::string message;
};

// Returns the newest of these failures in a pod's events (events.k8s.io/v1), or std::nullopt if no
// event reports one or the volume has been attached since. The kubelet's "waiting for volumes"
// events count only if no other event states a cause.
std::optional<PodStartFailure> find_start_failure(const std::vector<nlohmann::json>& events);

// Lists the events of the pod (normally one request) and evaluates them.
kube::ApiResult<std::optional<PodStartFailure>> read_start_failure(
    kube::Client& client, const std::string& namespace_name, const std::string& pod_uid,
    const net::Wait& wait);

}  // namespace tilewright::controller
