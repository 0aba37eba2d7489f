// Writes a TrainJob as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "controller/api/trainjob.h"

namespace tilewright::api {

// Leaves out members that are not set. decode_object(to_json(job)) yields an equal job.
nlohmann::json to_json(const TrainJob& job);
nlohmann::json to_json(const TrainJobStatus& status);
nlohmann::json to_json(const ObjectMeta& metadata);

}  // namespace tilewright::api
