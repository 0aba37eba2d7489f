// Reads a pod from the API server as a Worker.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "controller/policy/observed.h"

namespace tilewright::cluster {

// Reads the state of the container `worker`, in the pod of a PyTorchJob that of `pytorch`. If an
// init container has failed, reads that one: the others never start.
// Returns std::nullopt if the pod has no worker index label. Members of an unexpected type count as
// absent, because the API server has validated the pod. The caller sets `node_state`, which is not
// part of a pod.
std::optional<policy::Worker> worker_of_pod(const nlohmann::json& pod);

}  // namespace tilewright::cluster
