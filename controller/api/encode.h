// Writes a TrainJob or a PyTorchJob as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// Leaves out members that are not set. decode_object(to_json(job)), or decode_pytorchjob(), yields
// an equal job.
nlohmann::json to_json(const TrainJob& job);
nlohmann::json to_json(const PyTorchJob& job);
// Without the field tilewright if nothing is recorded in it.
nlohmann::json to_json(const PyTorchJobStatus& status);
nlohmann::json to_json(const TrainJobStatus& status);

}  // namespace tilewright::api
