// From a TrainJob, or any tree, back to JSON and YAML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "controller/api/trainjob.h"

namespace tilewright::api {

// What was left out stays out: decode_object(to_json(job)) is the same job.
nlohmann::json to_json(const TrainJob& job);
nlohmann::json to_json(const TrainJobStatus& status);
nlohmann::json to_json(const ObjectMeta& metadata);

// YAML of a tree, block style, keys in order; strings are quoted where YAML would read something
// else (no, 1e3, ~).
std::string to_yaml(const nlohmann::json& tree);

}  // namespace tilewright::api
