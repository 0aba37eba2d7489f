// Why a pod that has its node does not start, where its status does not say: what the kubelet and
// the attacher of volumes told in events.
#pragma once

#include <optional>
#include <string>

#include "controller/kube/client.h"

namespace tilewright::manager {

struct PodTrouble {
  std::string reason;  // FailedMount, FailedAttachVolume, FailedCreatePodSandBox
  std::string message;
};

// Of a pod's events (events.k8s.io/v1) the newest of those; nothing where there is none or the
// volume is attached by now. That a kubelet waits for volumes counts only where nothing says why.
std::optional<PodTrouble> trouble_in(const std::vector<nlohmann::json>& events);

// Asks for the pod's events. One request; errors are for the log.
kube::ApiResult<std::optional<PodTrouble>> ask_for_trouble(kube::Client& client,
                                                           const std::string& namespace_name,
                                                           const std::string& pod_uid,
                                                           const net::Wait& wait);

}  // namespace tilewright::manager
