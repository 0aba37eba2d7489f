// Carries a Plan out through the API server, in the order that plan.h asks for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "controller/kube/client.h"
#include "controller/manager/job_keys.h"
#include "controller/manager/job_memory.h"
#include "controller/manager/recorder.h"
#include "controller/manager/rendezvous_hub.h"
#include "controller/manager/task_pool.h"
#include "controller/reconcile/plan.h"

namespace tilewright::manager {

// How carrying out went. Whatever it was, the next look starts from what is.
struct Outcome {
  bool complete = true;                 // false: look again soon, with the key's back-off
  std::optional<kube::ApiError> error;  // the first one, for the log
};

class Applier {
 public:
  struct Parts {  // all outlive the object
    kube::Client& client;
    const kube::WriteGuard& guard;
    RendezvousHub& hub;
    const JobKeys& keys;
    Recorder& recorder;
    TaskPool& pool;
  };
  // `rendezvous` says host:port as workers are told it from now on; from any thread.
  Applier(const Parts& parts, std::function<std::string()> rendezvous, std::shared_ptr<Logger> log)
      : parts_(parts), rendezvous_(std::move(rendezvous)), log_(std::move(log)) {}

  // `job` is what the plan was made for, with the status it had, `stored` that status as the API
  // server has it. Thread-safe for different jobs.
  Outcome apply(const api::TrainJob& job, const nlohmann::json& stored, const reconcile::Plan& plan,
                JobMemory& memory, const net::Wait& wait);

 private:
  class Application;

  const Parts parts_;
  const std::function<std::string()> rendezvous_;
  const std::shared_ptr<Logger> log_;
};

}  // namespace tilewright::manager
