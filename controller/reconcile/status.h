// The status that reconcile wants written: phase, counts, progress; and whether it is worth a
// write.
#pragma once

#include <optional>

#include "controller/api/status.h"
#include "controller/reconcile/restarts.h"
#include "controller/reconcile/situation.h"

namespace tilewright::reconcile {

bool is_final(api::Phase phase);

// The sizes that the job keeps whatever happens to its replicas later.
void freeze_sizes(const api::TrainJob& job, api::TrainJobStatus& status);

// The phase of a job that is neither suspended nor at its end.
api::Phase phase_of(const Situation& situation, const api::TrainJobStatus& status);

// Counts, progress, selector, observedGeneration; forgets counted workers that are gone.
void fill_in(const Situation& situation, api::TrainJobStatus& status);

// Whether `wanted` is to be written over `current`. Progress alone is worth a write every ten
// seconds, counts alone once they have settled; the timer says when.
bool worth_writing(const Situation& situation, const api::TrainJobStatus& current,
                   const api::TrainJobStatus& wanted, Timer& timer);

}  // namespace tilewright::reconcile
