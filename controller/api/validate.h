// Checks a decoded TrainJob or PyTorchJob with defaults applied. Each error is one sentence.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "controller/api/decode.h"
#include "controller/api/findings.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/trainjob.h"

namespace tilewright::api {

// Checks that apply to a cluster and to `tilewright up`.
Findings validate(const TrainJob& job, const Positions& positions = {});
// Checks for `tilewright up`: a local directory for each volume, plain values in env.
Findings validate_for_local(const TrainJob& job, const Positions& positions = {});
// Checks for a cluster: a source for each volume, and the restricted Pod Security Standard.
Findings validate_for_cluster(const TrainJob& job, const Positions& positions = {});

// The checks of Kubeflow's webhook, and values with which its pods would fail or wait for ever.
Findings validate(const PyTorchJob& job, const Positions& positions = {});

// The rule of metadata.name, for a name from elsewhere. Error (kUsage): "found ..., expected ...".
Status check_job_name(std::string_view name, const TrainJob& job);

// Removes the numbers of an invalid job's run policy that are out of bounds.
void drop_invalid_limits(RunPolicy& policy);

enum class Target { kAnywhere, kLocal, kCluster };

struct ValidatedJob {
  TrainJob job;  // with defaults applied
  std::vector<FieldError> warnings;
  Positions positions;  // of the manifest's fields
};

// Decodes, applies defaults and validates. The Error (kManifest) contains one sentence per line,
// each starting with FILE:LINE. Of a file with several objects, the only TrainJob; the warnings
// name the others, but a misspelt kind is an error.
Result<ValidatedJob> check_manifest(std::string_view yaml, std::string_view file, Target target);
// The same for one document of a manifest with several.
Result<ValidatedJob> check_document(Document document, std::string_view file, Target target);

}  // namespace tilewright::api
