// The CustomResourceDefinitions of TrainJob and PyTorchJob, made from the field lists.
// `tilewright crd` prints them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/api/field.h"

namespace tilewright::api {

nlohmann::json trainjob_crd();
// The text of crds/trainjobs.tilewright.dev.yaml.
std::string trainjob_crd_yaml();

// Compatible with the CRD of Kubeflow's training operator v1.9: the same names and subresources,
// and every object that one accepts. Pod templates are objects of any content.
nlohmann::json pytorchjob_crd();
// The text of crds/pytorchjobs.kubeflow.org.yaml.
std::string pytorchjob_crd_yaml();

// The value of x-kubernetes-validations.
nlohmann::json rules_schema(const std::vector<Rule>& rules);

}  // namespace tilewright::api
