// A pod, as the API server shows it, as a Worker.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "controller/reconcile/observed.h"

namespace tilewright::reconcile {

// Nothing if the object carries no worker index of ours. Absent or odd members are taken for
// absent: the API server has checked what matters. `node_ready` is not in a pod: the caller knows.
std::optional<Worker> worker_of_pod(const nlohmann::json& pod);

}  // namespace tilewright::reconcile
