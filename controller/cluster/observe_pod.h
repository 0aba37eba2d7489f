// Reads a pod from the API server as a Worker.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "controller/policy/observed.h"

namespace tilewright::cluster {

// The container named worker decides, in the pod of a PyTorchJob the one named pytorch; if an init
// container fails, that one, because the other containers then never start.
// Returns std::nullopt if the pod has no worker index label. Members of an unexpected type count as
// absent, because the API server has validated the pod. The caller sets `node_state`, which is not
// part of a pod.
std::optional<policy::Worker> worker_of_pod(const nlohmann::json& pod);

}  // namespace tilewright::cluster
