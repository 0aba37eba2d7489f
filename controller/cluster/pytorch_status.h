// The status of a PyTorchJob as the API server stores it.
//
// The operator's own part, status.tilewright, holds the state from which the policies continue.
// Kubeflow's CRD has no such field, and the API server then drops it. There the part is the JSON
// text of a condition's message: one write stores it together with the rest, needs no permission
// beyond the status, and Kubeflow's clients ignore conditions of types that they do not know.
#pragma once

#include <nlohmann/json.hpp>

#include "controller/api/pytorchjob.h"

namespace tilewright::cluster {

enum class StatusLayout {
  kField,      // status.tilewright
  kCondition,  // a condition of type kStateCondition
};

inline constexpr const char* kStateCondition = "TilewrightState";

nlohmann::json encode_status(const api::PyTorchJobStatus& status, StatusLayout layout);

// The layout of a stored status.
StatusLayout layout_of(const nlohmann::json& status);

// Moves the message of the condition into status.tilewright of the stored object, in which
// decode_pytorchjob() expects it. A message that is no JSON object counts as absent.
void restore_state(nlohmann::json& object);

// Whether the API server has dropped status.tilewright. `stored`: the status after a write of
// `written` with StatusLayout::kField.
bool state_was_dropped(const nlohmann::json& written, const nlohmann::json& stored);

}  // namespace tilewright::cluster
