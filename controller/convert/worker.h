// spec.worker of the TrainJob without its variables and podTemplate: replicas, image, resources.
#pragma once

#include "controller/convert/draft.h"
#include "controller/convert/source.h"

namespace tilewright::convert {

void convert_worker(const Source& source, Draft& draft);

}  // namespace tilewright::convert
