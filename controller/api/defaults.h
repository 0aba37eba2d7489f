// What a manifest that says nothing means.
#pragma once

#include "controller/api/trainjob.h"

namespace tilewright::api {

// Fills the members marked "defaulted" in trainjob.h, and resources.cpu (1), resources.memory (4Gi)
// and sharedMemory (64Mi). Applying it twice changes nothing.
void apply_defaults(TrainJob& job);

}  // namespace tilewright::api
