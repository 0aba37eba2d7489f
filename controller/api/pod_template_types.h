// The types of the fields of spec.worker.podTemplate. The overlay stays JSON, because the API server
// validates it as part of the pod, but code that merges or reads it relies on these types.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "controller/api/object_reader.h"

namespace tilewright::api {

// Reports each field of `overlay` that has another type than in a pod. Unknown fields pass.
void check_pod_template_types(const DecodeContext& context, const nlohmann::json& overlay,
                              const std::string& path);

}  // namespace tilewright::api
