// The parts of a TrainJob that have a file of their own.
#pragma once

#include "controller/api/fields.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

void decode_metadata(Fields& fields, ObjectMeta& metadata);
void decode_status(Fields& fields, TrainJobStatus& status);

}  // namespace tilewright::api
