// The settings of a training: the values of its flags, and what follows from them before a worker
// starts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/contract/training_flags.h"
#include "worker/runtime/cpu.h"

namespace tilewright::train {

// make_settings() resolves these flags in place: nominal_workers, max_workers and virtual_shards
// are never 0, init_seed is never -1, and exact is false with the oneDNN backend.
struct Settings : TrainingSettings {
  // Examples per optimizer step: per-device batch size x nominal workers x accumulation steps. It
  // stays the same for the life of the job, however many workers there are.
  std::int64_t global_batch = 0;

  bool uses_onednn() const { return gemm_backend == "onednn"; }
};

// `world`: processes at the start, used if nominal_workers or max_workers is 0. Throws
// Failure(kUsage) for a missing flag and for flags that exclude each other.
Settings make_settings(const TrainingArguments& arguments, std::int64_t world);

// Throws Failure(kUnsupported) if the settings select oneDNN and it has no kernels for their data
// type on `isa`.
void check_gemm_backend(const Settings& settings, runtime::Isa isa);

// The values that determine the trained weights. All workers must have the same, and so must a
// checkpoint and the training that resumes from it.
nlohmann::json fingerprint(const Settings& settings);

}  // namespace tilewright::train
