// What the workers of a membership epoch agree on before they train.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker/collectives/mesh.h"
#include "worker/elastic/state_agreement.h"
#include "worker/train/job.h"

namespace tilewright::train {

// What all workers continue from. `own`: the report of this worker without the digests of its job.
// `resume_step` as in elastic::agree_on_state(). Collective. If flags, model or data of the workers
// differ, the sum of their gradients or the metrics of their evaluation would be wrong: throws a
// Failure that names the first setting in which a rank differs from rank 0, kPeerLost if this
// worker has a state and continues without the others, else kUsage.
elastic::StateAgreement agree_on_state(collectives::Mesh& mesh, const Job& job,
                                       elastic::StateReport own, std::int64_t resume_step);

// Runs `call` on rank 0 and sends its result to all ranks. If it throws a Failure, all ranks throw
// the same. Collective.
std::string run_on_rank0(collectives::Mesh& mesh, const std::function<std::string()>& call);

}  // namespace tilewright::train
