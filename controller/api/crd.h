// The CustomResourceDefinition of TrainJob, made from the field lists. `tilewright crd` prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/api/field.h"

namespace tilewright::api {

nlohmann::json trainjob_crd();
// The text of crds/trainjobs.tilewright.dev.yaml.
std::string trainjob_crd_yaml();

// The value of x-kubernetes-validations.
nlohmann::json rules_schema(const std::vector<Rule>& rules);

}  // namespace tilewright::api
