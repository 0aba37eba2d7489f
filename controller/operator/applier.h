// Executes a Plan through the API server, in the order that plan.h requires.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/operator/job_expectations.h"
#include "controller/operator/job_keys.h"
#include "controller/operator/job_objects.h"
#include "controller/operator/recorder.h"
#include "controller/operator/rendezvous_hub.h"
#include "controller/operator/task_pool.h"
#include "controller/policy/plan.h"

namespace tilewright::controller {

// The outcome of a plan. The next reconcile starts from the observed state in either case.
struct ApplyResult {
  bool complete = true;                 // false: reconcile again with the back-off of the key
  std::optional<kube::ApiError> error;  // the first error, for the log
};

class Applier {
 public:
  struct Dependencies {  // must outlive the Applier
    kube::Client& client;
    const kube::WriteGuard& guard;
    RendezvousHub& hub;
    const JobKeys& keys;
    Recorder& recorder;
    TaskPool& pool;
    std::vector<std::string> metrics_namespaces{};  // Options::metrics_namespaces
    std::string gang_scheduler{};                   // Options::gang_scheduler
  };
  // `rendezvous` returns the current host:port for new workers. Called from any thread.
  Applier(const Dependencies& deps, std::function<std::string()> rendezvous,
          std::shared_ptr<Logger> log)
      : deps_(deps), rendezvous_(std::move(rendezvous)), log_(std::move(log)) {}

  // `job`: the job with the status that the plan was computed from. `stored`: that status as stored
  // by the API server. `objects`: of the same job. Thread-safe for different jobs.
  ApplyResult apply(const api::TrainJob& job, const nlohmann::json& stored,
                    const policy::Plan& plan, JobExpectations& expectations, const net::Wait& wait,
                    const JobObjects& objects);

 private:
  class PlanExecution;

  const Dependencies deps_;
  const std::function<std::string()> rendezvous_;
  const std::shared_ptr<Logger> log_;
};

}  // namespace tilewright::controller
