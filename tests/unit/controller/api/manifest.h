// A valid manifest for tests, and helpers that change one place of it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "common/json/document.h"
#include "controller/api/decode.h"
#include "controller/api/validate.h"

namespace tilewright::api::testing {

// Line 1 of the manifest is line 1 of the errors that tests expect.
inline const std::string kManifest = R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata:
  name: mrpc
spec:
  nprocPerNode: 1
  elasticPolicy:
    rdzvBackend: c10d
    minReplicas: 1
    maxReplicas: 4
    maxRestarts: 3
  runPolicy:
    cleanPodPolicy: Running
  trainer:
    task: mrpc
    model: models:minilm
    data: data:MRPC
    output: output:$(TILEWRIGHT_JOB_NAME)
    learning_rate: 1e-4
    per_device_train_batch_size: 16
  worker:
    replicas: 2
    image: tilewright-worker:0.1.0
    restartPolicy: OnFailure
    resources:
      cpu: 1
      memory: 2Gi
    sharedMemory: 64Mi
  volumes:
    - name: models
      local: ../models
      persistentVolumeClaim: {claimName: tilewright-models}
    - name: data
      local: data
      persistentVolumeClaim: {claimName: tilewright-data}
    - name: output
      local: ../output
      persistentVolumeClaim: {claimName: tilewright-output}
)";

// The manifest with its one occurrence of `place` replaced.
inline std::string with(const std::string& place, const std::string& replacement,
                        std::string manifest = kManifest) {
  const std::size_t at = manifest.find(place);
  EXPECT_NE(at, std::string::npos) << place;
  EXPECT_EQ(manifest.find(place, at + 1), std::string::npos) << place << " occurs twice";
  return manifest.replace(at, place.size(), replacement);
}

// The manifest's job without defaults, and the errors of reading it.
inline DecodeResult decode_manifest(const std::string& manifest) {
  return decode_document(read_yaml(manifest));
}

// The errors of a manifest; empty if it is valid.
inline std::string errors_of(const std::string& manifest, Target target = Target::kAnywhere) {
  const Result<ValidatedJob> checked = check_manifest(manifest, "job.yaml", target);
  if (checked.ok()) return "";
  EXPECT_EQ(checked.error().code, ExitCode::kManifest);
  return checked.error().message;
}

// The manifest with `replacement` at `place` has the error `message`.
struct BadManifest {
  const char* place;
  const char* replacement;
  std::string message;
};
inline void expect_errors(std::initializer_list<BadManifest> cases,
                          Target target = Target::kAnywhere) {
  for (const BadManifest& bad : cases) {
    EXPECT_EQ(errors_of(with(bad.place, bad.replacement), target), bad.message) << bad.replacement;
  }
}

// The manifest's job with defaults applied.
inline TrainJob job_of(const std::string& manifest = kManifest) {
  Result<ValidatedJob> checked = check_manifest(manifest, "job.yaml", Target::kAnywhere);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
  return checked.ok() ? checked->job : TrainJob();
}

}  // namespace tilewright::api::testing
