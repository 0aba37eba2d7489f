// Whether a decoded job with defaults applied can run: one sentence for everything that is wrong.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "controller/api/decode.h"
#include "controller/api/findings.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// What holds wherever the job runs.
Findings validate(const TrainJob& job, const Positions& positions = {});
// What only `tilewright up` needs: a local folder for each volume, plain values in env.
Findings validate_for_local(const TrainJob& job, const Positions& positions = {});
// What only a cluster needs: a source for each volume, nothing that restricted Pod Security
// forbids.
Findings validate_for_cluster(const TrainJob& job, const Positions& positions = {});

enum class Target { kAnywhere, kLocal, kCluster };

struct Checked {
  TrainJob job;  // with defaults applied
  std::vector<FieldError> warnings;
};

// Decode, default and validate in one. The Error (kManifest) is all sentences, one a line, each
// beginning with FILE:LINE.
Result<Checked> check_manifest(std::string_view yaml, std::string_view file, Target target);

}  // namespace tilewright::api
