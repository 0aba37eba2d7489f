// The fields of a pod and their types, for spec.worker.podTemplate and the templates of a
// PyTorchJob. They stay JSON, because the API server validates them as part of the pod, but code
// that merges or reads them relies on these types.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/api/object_reader.h"

namespace tilewright::api {

// Reports each field of `overlay` that has another type than in a pod, and quantities and pull
// policies that Kubernetes does not have. Unknown fields pass.
void check_pod_template_types(const DecodeContext& context, const nlohmann::json& overlay,
                              const std::string& path);

// The fields that no pod has, each with the nearest known name, without lines. An API server of a
// newer version may know them; else it drops them or, with strict validation, rejects the pod. The
// types of `pod_template` must have been checked.
std::vector<FieldError> unknown_pod_fields(const nlohmann::json& pod_template,
                                           const std::string& path);

}  // namespace tilewright::api
