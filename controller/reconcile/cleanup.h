// What goes when a job has ended (cleanPodPolicy, time to live) or is suspended.
#pragma once

#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

// Marks whom it deletes as counted: nobody's failure.
void clean_up(const Situation& situation, api::TrainJobStatus& status, Timer& timer, Plan& plan);

// All workers go; the job's place in the training is in its checkpoints.
void suspend(const Situation& situation, api::TrainJobStatus& status, Plan& plan);

// activeDeadlineSeconds, from the start of the job or its last resumption.
std::optional<JobEnd> judge_deadline(const Situation& situation, const api::TrainJobStatus& status,
                                     Timer& timer);

}  // namespace tilewright::reconcile
