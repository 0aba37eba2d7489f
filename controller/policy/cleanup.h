// The clean-up policy: what is deleted when a job has finished (cleanPodPolicy,
// ttlSecondsAfterFinished) or is suspended, and activeDeadlineSeconds.
#pragma once

#include "controller/policy/job_state.h"

namespace tilewright::policy {

// Marks the workers that it deletes as counted, because their exits are not failures.
void clean_up(const JobState& state, api::TrainJobStatus& status, Timer& timer, Plan& plan);

// Deletes all workers. The training resumes from the last checkpoint.
void suspend(const JobState& state, api::TrainJobStatus& status, Plan& plan);

// activeDeadlineSeconds counts from the start of the job or from the last time it was resumed.
std::optional<JobEnd> check_deadline(const JobState& state, const api::TrainJobStatus& status,
                                     Timer& timer);

}  // namespace tilewright::policy
