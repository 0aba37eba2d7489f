// spec.worker.env of the TrainJob: the variables of the container and of `export`.
#pragma once

#include "controller/convert/draft.h"
#include "controller/convert/source.h"
#include "controller/convert/volumes.h"

namespace tilewright::convert {

void convert_environment(const Source& source, Draft& draft, Volumes& volumes);

}  // namespace tilewright::convert
