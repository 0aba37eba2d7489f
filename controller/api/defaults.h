// Applies the defaults of a TrainJob.
#pragma once

#include "controller/api/trainjob.h"

namespace tilewright::api {

// Sets members that are empty to the defaults of the field lists (trainjob_fields.h), and
// minReplicas, maxReplicas and maxRestarts to values of other fields. Idempotent.
void apply_defaults(TrainJob& job);

}  // namespace tilewright::api
