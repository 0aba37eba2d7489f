// The status of a job (phase, counts, progress) and the rules for when changes of it are written.
#pragma once

#include <cstdint>
#include <optional>

#include "controller/api/status.h"
#include "controller/policy/job_state.h"
#include "controller/policy/restarts.h"

namespace tilewright::policy {

bool is_final(api::Phase phase);

// True if this index has failed since the job started or was resumed.
bool has_failed(const api::TrainJobStatus& status, int index);

// Sets the sizes that do not change when spec.worker.replicas changes later.
void freeze_sizes(const api::TrainJob& job, api::TrainJobStatus& status);

// The phase of a job that is neither suspended nor finished.
api::Phase phase_of(const JobState& state, const api::TrainJobStatus& status);

// Sets counts, progress, selector and observedGeneration; drops counted workers that no longer
// exist.
void fill_status(const JobState& state, api::TrainJobStatus& status);

// The step of status.progress.lastCheckpoint; -1: none.
std::int64_t last_checkpoint_step(const api::TrainJobStatus& status);

// Whether to write `wanted` over `current`. A change of progress alone is written every ten
// seconds, a change of counts alone once they have settled; the timer requeues the job for it.
bool needs_status_write(const JobState& state, const api::TrainJobStatus& current,
                        const api::TrainJobStatus& wanted, Timer& timer);

}  // namespace tilewright::policy
