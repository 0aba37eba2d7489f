// spec.trainer of the TrainJob: the flags of the script.
#pragma once

#include "controller/convert/draft.h"
#include "controller/convert/source.h"
#include "controller/convert/volumes.h"

namespace tilewright::convert {

void convert_flags(const Source& source, Draft& draft, Volumes& volumes);

}  // namespace tilewright::convert
