// How the policies see a PyTorchJob: as a TrainJob of the same size, limits and worker names.
#pragma once

#include <vector>

#include "controller/api/pytorchjob.h"
#include "controller/policy/observed.h"
#include "controller/policy/plan.h"

namespace tilewright::cluster {

// The limit of restarts if neither runPolicy.backoffLimit nor elasticPolicy.maxRestarts is set.
// Kubeflow's operator then restarts for ever. Ten, as in the manifests of the CPU guides.
inline constexpr std::int64_t kDefaultPyTorchRestarts = 10;

struct JobView {
  api::TrainJob job;
  policy::JobTraits traits;
  // The command is one that Tilewright's image runs natively; the job has the trainer's flags.
  bool trains_natively = false;
};

// The job must have defaults applied. Fields that its kind does not have keep the defaults of a
// TrainJob; the policies do not read them. A job that Tilewright's image trains has the sizes of
// the TrainJob that `tilewright convert` makes of it, so both end with the same weights.
JobView view_of(const api::PyTorchJob& job);

// The status of the job for Kubeflow's clients, made from `status`, which the policies computed for
// its view, and from the job's previous status.
api::PyTorchJobStatus status_of(const api::PyTorchJob& job, const api::TrainJobStatus& status,
                                const std::vector<policy::Worker>& workers, WallTime now);

// The event with the reason that Kubeflow's operator gives it. `status`: the new one.
policy::Event kubeflow_event(policy::Event event, const api::TrainJobStatus& status);

}  // namespace tilewright::cluster
