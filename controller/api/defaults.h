// Applies the defaults of a TrainJob or a PyTorchJob.
#pragma once

#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// Sets members that are empty to the defaults of the field lists (trainjob_fields.h), and
// minReplicas, maxReplicas and maxRestarts to values of other fields. Idempotent.
void apply_defaults(TrainJob& job);
// The defaults of Kubeflow's operator v1.9. Idempotent.
void apply_defaults(PyTorchJob& job);

}  // namespace tilewright::api
