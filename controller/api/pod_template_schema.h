// The schema of spec.worker.podTemplate: the fields of a pod that CEL rules check. Other fields are
// kept as they are (x-kubernetes-preserve-unknown-fields).
#pragma once

#include <nlohmann/json.hpp>

namespace tilewright::api {

nlohmann::json pod_template_schema();

}  // namespace tilewright::api
