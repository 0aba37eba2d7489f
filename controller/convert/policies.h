// Metadata, number of processes and policies of the TrainJob.
#pragma once

#include "controller/convert/draft.h"
#include "controller/convert/source.h"

namespace tilewright::convert {

void convert_metadata(const Source& source, Draft& draft);
void convert_process_count(const Source& source, Draft& draft);
void convert_elastic_policy(const Source& source, Draft& draft);
void convert_run_policy(const Source& source, Draft& draft);

}  // namespace tilewright::convert
