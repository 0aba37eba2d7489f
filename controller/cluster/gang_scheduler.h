// The gang scheduler of the operator (--gang_scheduler_name): Volcano, or a scheduler with the
// coscheduling plugin of scheduler-plugins, which schedules the pods of a PodGroup together.
//
// With a name, every job has a PodGroup of that scheduler. With an empty name only jobs with a
// schedulingPolicy do, and the schedulerName of their pods decides which API the PodGroup has.
//
// Source: github.com/kubeflow/training-operator v1.9, pkg/controller.v1/control/podgroup_control.go
// and pkg/controller.v1/common/{job,pod}.go.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/json/field_error.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"

namespace tilewright::cluster {

// The name from the value of the flag. As for Kubeflow's operator, "Volcano" is volcano, and "None"
// is no gang scheduler.
std::string parse_gang_scheduler(const std::string& value);

// Adds an empty schedulingPolicy, whose defaults then apply, to a job that has none.
void apply_gang_scheduler(const std::string& gang_scheduler, api::TrainJob& job);
void apply_gang_scheduler(const std::string& gang_scheduler, api::PyTorchJob& job);

// Warnings about pods that name another scheduler. It stays, as with Kubeflow's operator.
std::vector<FieldError> find_other_schedulers(const std::string& gang_scheduler,
                                              const api::TrainJob& job);
std::vector<FieldError> find_other_schedulers(const std::string& gang_scheduler,
                                              const api::PyTorchJob& job);

// schedulerName of a pod template; empty: none.
std::string scheduler_of(const nlohmann::json& pod_template);

// True if the PodGroup of pods with this schedulerName has Volcano's API, false if it has that of
// scheduler-plugins.
bool uses_volcano(const std::string& gang_scheduler, const std::string& scheduler_name);

// Sets schedulerName in a pod's spec that has none.
void set_scheduler(const std::string& gang_scheduler, nlohmann::json& spec);

}  // namespace tilewright::cluster
